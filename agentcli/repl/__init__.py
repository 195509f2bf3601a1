"""The chat.

Law: of prompt-toolkit the parts are imported and never the whole, which brings dialogs, progress
bars and an XML parser: its ``__init__`` runs when somebody asks it for a name (PEP 562). Most parts
need ``prompt_toolkit.application`` to be imported before them, as that ``__init__`` would.
"""

import sys
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any


def _in_parts(name: str) -> None:
    """Have ``import name.part`` import that part alone. https://peps.python.org/pep-0562/"""
    spec = PathFinder.find_spec(name)
    if name in sys.modules or spec is None or spec.loader is None:
        return
    package: Any = ModuleType(name)
    run = spec.loader.exec_module

    def whole(wanted: str) -> object:
        del package.__getattr__  # what is not there when it has run is not there at all
        run(package)
        return getattr(package, wanted)

    package.__spec__, package.__loader__, package.__package__ = spec, spec.loader, name
    package.__path__, package.__file__ = spec.submodule_search_locations, spec.origin
    package.__getattr__ = whole
    sys.modules[name] = package


_in_parts("prompt_toolkit")

"""The languages of the map, and what in a syntax tree defines a name or uses one (MEM-3).

A language is a grammar (a wheel of tree-sitter) and two queries. In the first ``@name`` is the
name and the other capture the definition, called by its kind; ``container`` gives names to what is
inside and defines nothing. In the second ``use`` is a name that stands alone, ``member`` one that
belongs to something, ``import`` one of an import and ``path`` the text of one; ``local`` is bound
inside of the nearest ``scope``, and ``skip`` is no use of a name at all. Queries:
https://tree-sitter.github.io/tree-sitter/using-parsers/queries/
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language as Grammar
    from tree_sitter import Query


@dataclass(frozen=True, slots=True)
class Language:
    """A language of the map.

    ``shares``: a name of one file is known in the others without an import of its own.
    """

    name: str
    module: str
    suffixes: tuple[str, ...]
    definitions: str
    uses: str
    shares: bool = True
    entry: str = "language"


@dataclass(frozen=True, slots=True)
class Queries:
    """What a language is read with."""

    grammar: Grammar
    definitions: Query
    uses: Query


@cache
def queries_of(language: Language) -> Queries | None:
    """The grammar and its queries; ``None`` where its wheel is missing or is another than known."""
    try:
        from tree_sitter import Language as Loaded
        from tree_sitter import Query

        grammar = Loaded(getattr(import_module(language.module), language.entry)())
        return Queries(grammar, Query(grammar, language.definitions), Query(grammar, language.uses))
    except (ImportError, AttributeError, ValueError, TypeError):
        return None


_PYTHON = Language(
    "python",
    "tree_sitter_python",
    (".py", ".pyi"),
    """
(class_definition name: (identifier) @name) @class
(function_definition name: (identifier) @name) @function
(module (expression_statement (assignment left: (identifier) @name)) @constant)
(class_definition body: (block (expression_statement
  (assignment left: (identifier) @name)) @field))
""",
    """
(identifier) @use
(attribute attribute: (identifier) @member)
(keyword_argument name: (identifier) @skip)
(import_statement name: (dotted_name (identifier) @import))
(import_statement name: (aliased_import name: (dotted_name (identifier) @import)))
(import_from_statement module_name: (dotted_name (identifier) @import))
(import_from_statement module_name: (relative_import (dotted_name (identifier) @import)))
(import_from_statement name: (dotted_name (identifier) @import))
(import_from_statement name: (aliased_import name: (dotted_name (identifier) @import)))
(aliased_import alias: (identifier) @skip)
(function_definition) @scope
(lambda) @scope
(parameters (identifier) @local)
(lambda_parameters (identifier) @local)
(default_parameter name: (identifier) @local)
(typed_parameter (identifier) @local)
(typed_default_parameter name: (identifier) @local)
(list_splat_pattern (identifier) @local)
(dictionary_splat_pattern (identifier) @local)
(assignment left: (identifier) @local)
(pattern_list (identifier) @local)
(tuple_pattern (identifier) @local)
(for_statement left: (identifier) @local)
(for_in_clause left: (identifier) @local)
(as_pattern_target (identifier) @local)
(named_expression name: (identifier) @local)
""",
    shares=False,
)

_SCRIPT_DEFINITIONS = """
(function_declaration name: (identifier) @name) @function
(generator_function_declaration name: (identifier) @name) @function
(method_definition name: (_) @name) @method
(variable_declarator name: (identifier) @name
  value: [(arrow_function) (function_expression)]) @function
(program (lexical_declaration (variable_declarator name: (identifier) @name)) @constant)
(program (export_statement (lexical_declaration
  (variable_declarator name: (identifier) @name)) @constant))
(assignment_expression left: (member_expression property: (property_identifier) @name)
  right: [(arrow_function) (function_expression)]) @method
"""
_SCRIPT_USES = """
(identifier) @use
(shorthand_property_identifier) @use
(property_identifier) @member
(private_property_identifier) @member
(pair key: (property_identifier) @skip)
(import_specifier name: (identifier) @import)
(import_specifier alias: (identifier) @skip)
(import_clause (identifier) @import)
(namespace_import (identifier) @import)
(import_statement source: (string (string_fragment) @path))
(export_statement source: (string (string_fragment) @path))
(call_expression function: (identifier) @_called
  arguments: (arguments (string (string_fragment) @path)) (#eq? @_called "require"))
(variable_declarator name: (object_pattern (shorthand_property_identifier_pattern) @import)
  value: (call_expression function: (identifier) @_called) (#eq? @_called "require"))
(function_declaration) @scope
(generator_function_declaration) @scope
(function_expression) @scope
(arrow_function) @scope
(method_definition) @scope
(arrow_function parameter: (identifier) @local)
(variable_declarator name: (identifier) @local)
(object_pattern (shorthand_property_identifier_pattern) @local)
(array_pattern (identifier) @local)
(catch_clause parameter: (identifier) @local)
"""
_JAVASCRIPT = Language(
    "javascript",
    "tree_sitter_javascript",
    (".js", ".mjs", ".cjs", ".jsx"),
    _SCRIPT_DEFINITIONS
    + """
(class_declaration name: (identifier) @name) @class
(field_definition property: (property_identifier) @name) @field
""",
    _SCRIPT_USES
    + """
(formal_parameters (identifier) @local)
(formal_parameters (assignment_pattern left: (identifier) @local))
(formal_parameters (rest_pattern (identifier) @local))
""",
    shares=False,
)
_TYPED_DEFINITIONS = (
    _SCRIPT_DEFINITIONS
    + """
(class_declaration name: (type_identifier) @name) @class
(abstract_class_declaration name: (type_identifier) @name) @class
(interface_declaration name: (type_identifier) @name) @interface
(type_alias_declaration name: (type_identifier) @name) @type
(enum_declaration name: (identifier) @name) @enum
(public_field_definition name: (property_identifier) @name) @field
(method_signature name: (property_identifier) @name) @method
(abstract_method_signature name: (property_identifier) @name) @method
(function_signature name: (identifier) @name) @function
(internal_module name: (identifier) @name) @module
"""
)
_TYPED_USES = (
    _SCRIPT_USES
    + """
(type_identifier) @use
(required_parameter pattern: (identifier) @local)
(required_parameter pattern: (rest_pattern (identifier) @local))
(optional_parameter pattern: (identifier) @local)
(property_signature name: (property_identifier) @skip)
"""
)
_TYPESCRIPT = Language(
    "typescript",
    "tree_sitter_typescript",
    (".ts", ".mts", ".cts"),
    _TYPED_DEFINITIONS,
    _TYPED_USES,
    shares=False,
    entry="language_typescript",
)
_TSX = Language(
    "tsx",
    "tree_sitter_typescript",
    (".tsx",),
    _TYPED_DEFINITIONS,
    _TYPED_USES,
    shares=False,
    entry="language_tsx",
)

_GO = Language(
    "go",
    "tree_sitter_go",
    (".go",),
    """
(function_declaration name: (identifier) @name) @function
(method_declaration receiver: (parameter_list (parameter_declaration
  type: [(type_identifier) @of (pointer_type (type_identifier) @of)]))
  name: (field_identifier) @name) @method
(type_spec name: (type_identifier) @name) @type
(method_elem name: (field_identifier) @name) @method
(field_declaration name: (field_identifier) @name) @field
(source_file (const_declaration (const_spec name: (identifier) @name) @constant))
(source_file (var_declaration (var_spec name: (identifier) @name) @constant))
""",
    """
(identifier) @use
(type_identifier) @use
(field_identifier) @member
(qualified_type name: (type_identifier) @member)
(keyed_element . (literal_element (identifier) @member))
(import_spec path: (interpreted_string_literal) @path)
(function_declaration) @scope
(method_declaration) @scope
(func_literal) @scope
(parameter_declaration name: (identifier) @local)
(variadic_parameter_declaration name: (identifier) @local)
(short_var_declaration left: (expression_list (identifier) @local))
(var_spec name: (identifier) @local)
(range_clause left: (expression_list (identifier) @local))
""",
)

_RUST = Language(
    "rust",
    "tree_sitter_rust",
    (".rs",),
    """
(function_item name: (identifier) @name) @function
(function_signature_item name: (identifier) @name) @function
(struct_item name: (type_identifier) @name) @struct
(union_item name: (type_identifier) @name) @struct
(enum_item name: (type_identifier) @name) @enum
(enum_variant name: (identifier) @name) @constant
(trait_item name: (type_identifier) @name) @trait
(type_item name: (type_identifier) @name) @type
(mod_item name: (identifier) @name) @module
(const_item name: (identifier) @name) @constant
(static_item name: (identifier) @name) @constant
(macro_definition name: (identifier) @name) @macro
(field_declaration name: (field_identifier) @name) @field
(impl_item type: (type_identifier) @name) @container
(impl_item type: (generic_type type: (type_identifier) @name)) @container
""",
    """
(identifier) @use
(type_identifier) @use
(field_identifier) @member
(scoped_identifier path: (_) name: (identifier) @member)
(function_item) @scope
(closure_expression) @scope
(parameter pattern: (identifier) @local)
(closure_parameters (identifier) @local)
(let_declaration pattern: (identifier) @local)
(for_expression pattern: (identifier) @local)
(tuple_pattern (identifier) @local)
""",
)

_JAVA = Language(
    "java",
    "tree_sitter_java",
    (".java",),
    """
(class_declaration name: (identifier) @name) @class
(record_declaration name: (identifier) @name) @class
(interface_declaration name: (identifier) @name) @interface
(annotation_type_declaration name: (identifier) @name) @interface
(enum_declaration name: (identifier) @name) @enum
(enum_constant name: (identifier) @name) @constant
(method_declaration name: (identifier) @name) @method
(constructor_declaration name: (identifier) @name) @method
(field_declaration declarator: (variable_declarator name: (identifier) @name)) @field
""",
    """
(identifier) @use
(type_identifier) @use
(method_invocation name: (identifier) @member)
(field_access field: (identifier) @member)
(method_reference (_) (identifier) @member)
(package_declaration (scoped_identifier name: (identifier) @skip))
(method_declaration) @scope
(constructor_declaration) @scope
(lambda_expression) @scope
(formal_parameter name: (identifier) @local)
(local_variable_declaration declarator: (variable_declarator name: (identifier) @local))
(inferred_parameters (identifier) @local)
(lambda_expression parameters: (identifier) @local)
(enhanced_for_statement name: (identifier) @local)
(catch_formal_parameter name: (identifier) @local)
(resource name: (identifier) @local)
""",
)

_C_DEFINITIONS = """
(function_definition declarator: (function_declarator
  declarator: (identifier) @name)) @function
(function_definition declarator: (pointer_declarator declarator: (function_declarator
  declarator: (identifier) @name))) @function
(function_definition declarator: (pointer_declarator declarator: (pointer_declarator
  declarator: (function_declarator declarator: (identifier) @name)))) @function
(struct_specifier name: (type_identifier) @name body: (_)) @struct
(union_specifier name: (type_identifier) @name body: (_)) @struct
(enum_specifier name: (type_identifier) @name body: (_)) @enum
(enumerator name: (identifier) @name) @constant
(type_definition declarator: (type_identifier) @name) @type
(field_declaration declarator: (field_identifier) @name) @field
(preproc_def name: (identifier) @name) @macro
(preproc_function_def name: (identifier) @name) @macro
(translation_unit (declaration declarator: (init_declarator
  declarator: (identifier) @name)) @constant)
"""
_C_USES = """
(identifier) @use
(type_identifier) @use
(field_identifier) @member
(function_definition) @scope
(parameter_declaration declarator: (identifier) @local)
(parameter_declaration declarator: (pointer_declarator declarator: (identifier) @local))
(parameter_declaration declarator: (array_declarator declarator: (identifier) @local))
(declaration declarator: (identifier) @local)
(declaration declarator: (pointer_declarator declarator: (identifier) @local))
(declaration declarator: (array_declarator declarator: (identifier) @local))
(init_declarator declarator: (identifier) @local)
(init_declarator declarator: (pointer_declarator declarator: (identifier) @local))
(init_declarator declarator: (array_declarator declarator: (identifier) @local))
"""
_C = Language("c", "tree_sitter_c", (".c", ".h"), _C_DEFINITIONS, _C_USES)
_CPP = Language(
    "c++",
    "tree_sitter_cpp",
    (".cc", ".cpp", ".cxx", ".hpp", ".hh", ".hxx", ".ipp"),
    _C_DEFINITIONS
    + """
(class_specifier name: (type_identifier) @name body: (_)) @class
(namespace_definition name: (namespace_identifier) @name) @container
(alias_declaration name: (type_identifier) @name) @type
(function_definition declarator: (function_declarator
  declarator: (field_identifier) @name)) @method
(function_definition declarator: (reference_declarator (function_declarator
  declarator: (field_identifier) @name))) @method
(field_declaration declarator: (function_declarator
  declarator: (field_identifier) @name)) @method
(function_definition declarator: (function_declarator
  declarator: (qualified_identifier scope: (_) @of name: (identifier) @name))) @method
""",
    _C_USES
    + """
(qualified_identifier name: (identifier) @member)
(lambda_expression) @scope
(parameter_declaration declarator: (reference_declarator (identifier) @local))
(for_range_loop declarator: (identifier) @local)
""",
)

_RUBY = Language(
    "ruby",
    "tree_sitter_ruby",
    (".rb", ".rake"),
    """
(class name: (constant) @name) @class
(class name: (scope_resolution name: (constant) @name)) @class
(module name: (constant) @name) @module
(module name: (scope_resolution name: (constant) @name)) @module
(method name: (_) @name) @function
(singleton_method name: (_) @name) @function
(assignment left: (constant) @name) @constant
""",
    """
(identifier) @use
(constant) @use
(call method: (identifier) @member)
(method) @scope
(singleton_method) @scope
(block) @scope
(do_block) @scope
(method_parameters (identifier) @local)
(block_parameters (identifier) @local)
(optional_parameter name: (identifier) @local)
(keyword_parameter name: (identifier) @local)
(assignment left: (identifier) @local)
""",
)

_PHP = Language(
    "php",
    "tree_sitter_php",
    (".php", ".phtml"),
    """
(class_declaration name: (name) @name) @class
(interface_declaration name: (name) @name) @interface
(trait_declaration name: (name) @name) @trait
(enum_declaration name: (name) @name) @enum
(enum_case name: (name) @name) @constant
(function_definition name: (name) @name) @function
(method_declaration name: (name) @name) @method
(const_element (name) @name) @constant
""",
    """
(name) @use
(member_call_expression name: (name) @member)
(member_access_expression name: (name) @member)
(scoped_call_expression name: (name) @member)
(class_constant_access_expression (_) (name) @member)
(variable_name (name) @skip)
(namespace_definition name: (namespace_name (name) @skip))
""",
    entry="language_php",
)

_C_SHARP = Language(
    "c#",
    "tree_sitter_c_sharp",
    (".cs",),
    """
(class_declaration name: (identifier) @name) @class
(struct_declaration name: (identifier) @name) @struct
(record_declaration name: (identifier) @name) @class
(interface_declaration name: (identifier) @name) @interface
(enum_declaration name: (identifier) @name) @enum
(enum_member_declaration name: (identifier) @name) @constant
(delegate_declaration name: (identifier) @name) @type
(method_declaration name: (identifier) @name) @method
(constructor_declaration name: (identifier) @name) @method
(property_declaration name: (identifier) @name) @field
(field_declaration (variable_declaration (variable_declarator name: (identifier) @name))) @field
""",
    """
(identifier) @use
(member_access_expression name: (identifier) @member)
(invocation_expression function: (identifier) @member)
(namespace_declaration name: (_) @skip)
(method_declaration) @scope
(constructor_declaration) @scope
(lambda_expression) @scope
(parameter name: (identifier) @local)
(local_declaration_statement (variable_declaration
  (variable_declarator name: (identifier) @local)))
(foreach_statement left: (identifier) @local)
""",
)

_BASH = Language(
    "bash",
    "tree_sitter_bash",
    (".sh", ".bash"),
    "(function_definition name: (word) @name) @function",
    "(command_name (word) @use)",
)

LANGUAGES = (
    *(_PYTHON, _JAVASCRIPT, _TYPESCRIPT, _TSX, _GO, _RUST, _JAVA),
    *(_C, _CPP, _RUBY, _PHP, _C_SHARP, _BASH),
)
BY_SUFFIX = {suffix: language for language in LANGUAGES for suffix in language.suffixes}
# what has no grammar here and is read as text
TEXT_SUFFIXES = frozenset(
    {
        *(".kt", ".kts", ".swift", ".scala", ".groovy", ".dart", ".lua", ".pl", ".pm", ".r", ".jl"),
        *(".ex", ".exs", ".erl", ".hs", ".ml", ".fs", ".vb", ".m", ".mm", ".zig", ".nim", ".sql"),
        *(".vue", ".svelte", ".ps1", ".tcl", ".clj", ".el", ".proto", ".graphql", ".cu", ".sol"),
    }
)

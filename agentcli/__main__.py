"""``python -m agentcli`` is the same program as ``agent``."""

from agentcli.cli.entry import main

if __name__ == "__main__":
    main()

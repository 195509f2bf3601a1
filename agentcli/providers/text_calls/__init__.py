"""Tool calls and thinking that a model writes into its text (STR-10, STR-11)."""

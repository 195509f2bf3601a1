"""Ground floor: values, the history law, events, errors and ports. Standard library only."""

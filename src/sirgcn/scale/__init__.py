"""Beyond one process and beyond memory."""

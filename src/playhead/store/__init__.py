"""Local files: list, stat, read byte ranges."""

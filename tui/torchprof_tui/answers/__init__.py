"""The answers of the program, each declared once: typed records with units in their names, and what builds them.

The Python API returns these records, `--json` and the MCP tools write them, and the schemas and `docs/json.md` are
generated from them.
"""

"""`playhead schema`."""

from __future__ import annotations

import typer


def schema() -> None:
    """Print the JSON Schema of recipes, so that an editor can complete and check them.

    With the YAML language server: save it as recipe.schema.json, and begin the recipe with
    # yaml-language-server: $schema=recipe.schema.json
    """
    import json

    from playhead.recipe.schema import recipe_schema

    typer.echo(json.dumps(recipe_schema(), indent=2))

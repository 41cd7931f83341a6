"""`cocondenser plan`: what a run would do."""

from dataclasses import asdict, replace

from rich.markup import escape

from flows.cli.options import Json, RecipeName, Settings, StoreFolder, Until, columns, out, print_json, print_table


def plan(
    recipe: RecipeName,
    set: Settings = None,
    until: Until = None,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Show what a run would do, and why, with a guess of time and disk from what was built before."""
    from artifacts.store import Store
    from flows.dag import nodes
    from flows.graph.plan import plan as make_plan
    from flows.graph.preflight import missing
    from flows.graph.selection import select, store_folder
    from flows.recipes.recipe import resolve
    from pipeline.formatting import counted
    from tasks.terminal import duration, size

    shelf = Store(store_folder(store))
    resolved = resolve(recipe, set or [])
    wanted = select(nodes(resolved), until, None)
    steps = [
        # What a run would refuse is said in its words.
        step if step.action == "reuse" else replace(step, why=missing(node) or step.why)
        for node, step in zip(wanted, make_plan(shelf, wanted, resolved.name), strict=True)
    ]
    if as_json:
        print_json([{**asdict(step), "ref": step.ref.digest if step.ref else None} for step in steps])
        return
    table = columns()
    for heading in ("stage", ""):
        table.add_column(heading)
    table.add_column("why", min_width=20)
    table.add_column("time", justify="right")
    table.add_column("disk", justify="right")
    looks = {"reuse": "[cyan]reuse[/]", "build": "[green]build[/]", "unknown": "[yellow]?[/]"}
    for step in steps:
        why = "\n".join(step.why[:6]) + (f"\nand {len(step.why) - 6} more" if len(step.why) > 6 else "")
        seconds = "?" if step.seconds is None else duration(step.seconds)
        disk = "?" if step.bytes is None else size(step.bytes)
        guess = ("", "") if step.action == "reuse" else (seconds, disk)
        table.add_row(escape(step.node), looks[step.action], escape(why), *guess)
    print_table(table)
    todo = [step for step in steps if step.action != "reuse"]
    took, filled = sum(step.seconds or 0 for step in todo), sum(step.bytes or 0 for step in todo)
    unknown = sum(step.seconds is None for step in todo)
    total = f", at most about {duration(took)} and {size(filled)}" if len(todo) > unknown else ""
    beside = (
        f" (and what {counted(unknown, 'stages')} never built in this store will take)" if unknown and total else ""
    )
    none = " No guess of time and disk: this recipe never built them in this store." if todo and not total else ""
    out.print(f"\n{len(steps) - len(todo)} of {len(steps)} stages are reused{total}{beside}.{none}", highlight=False)

# SPDX-License-Identifier: Apache-2.0
"""The commands `pens compare` and `pens tune`: parsing and printing only."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pens.command_line import completion
from pens.command_line.options import Assignments, Budget, DataDir, Device, seeds_option
from pens.command_line.printing import new_console
from pens.errors import Interrupted, SettingsError

if TYPE_CHECKING:
    from rich.console import Console

    from pens.comparing.results import Findings
    from pens.comparing.scenes import Choice

ComparisonArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE.toml",
        help="Which methods, in which scenarios, with which seeds and settings (docs/comparing.md).",
        show_default=False,
        autocompletion=completion.files,
    ),
]
MethodsOption = Annotated[
    str | None,
    typer.Option("--methods", help="Only these methods of the file, with commas.", show_default="all of the file"),
]
ScenariosOption = Annotated[
    str | None,
    typer.Option("--scenarios", help="Only these scenarios of the file, with commas.", show_default="all of the file"),
]


def compare_command(
    file: ComparisonArgument = None,
    methods: MethodsOption = None,
    scenarios: ScenariosOption = None,
    seeds: Annotated[str | None, seeds_option("In place of those of the file.", "those of the file")] = None,
    assignments: Assignments = None,
    device: Device = "auto",
    budget: Budget = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for runs and results. Runs that are complete there are not run again.",
            show_default="runs/compare-NAME",
        ),
    ] = None,
    data_dir: DataDir = None,
    kept: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Run nothing: show the results in this folder again.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table in Markdown.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which runs are complete or missing.")] = False,
) -> None:
    """Compare methods over scenarios and seeds, as a TOML file says, in one table and one picture."""
    if kept:
        if any((file, methods, scenarios, seeds, assignments, budget, out, dry_run)):
            raise SettingsError("--from shows what was run: leave out the file, and all options but --markdown")
        from pens.comparing.kept import load

        print_findings(new_console(), load(kept), markdown)
        return
    if file is None:
        raise SettingsError("name the file of a comparison, pens compare FILE.toml, or a folder of results, --from DIR")
    from pens.comparing.file import read_comparison
    from pens.comparing.scenes import scenes_of
    from pens.planning.plan import Means
    from pens.planning.runs import RunPlan
    from pens.planning.shared_data import SharedData
    from pens.planning.store import RunStore

    comparison, data, console = read_comparison(file), SharedData(data_dir), new_console()
    scenes = scenes_of(comparison, data, choice_of(methods, scenarios, seeds, assignments))
    store = RunStore(out or Path("runs") / f"compare-{comparison.name}", "compare")
    wanted = [each for scene in scenes for each in scene.wanted()]
    plan = RunPlan(wanted, store, Means(device, data_dir, seconds_of(budget)), data)
    plan.prepare()

    from pens.command_line.watch import PlanWatcher, watching
    from pens.comparing.picture import write_files
    from pens.comparing.results import findings
    from pens.comparing.show import left_out_lines
    from pens.planning.show import not_run_lines, plan_table, plan_words

    if dry_run:
        shown = dict.fromkeys(method for scene in scenes for method in scene.methods)
        console.print(plan_table(plan, "", list(shown)))
        for line in left_out_lines({scene.name: scene.left_out for scene in scenes}):
            console.print(line, style="dim", markup=False, soft_wrap=True)
    console.print(plan_words(plan), style="dim", markup=False)
    if dry_run:
        return
    with watching(PlanWatcher(console)) as watcher:
        try:
            plan.run(watcher)
        except Interrupted:
            raise Interrupted(again_words()) from None
    found = findings(comparison, scenes, store)
    if not found.is_empty:
        print_findings(console, found, markdown)
        files = ", ".join(map(str, write_files(found, store.folder)))
        console.print(f"files: {files}", style="dim", markup=False, soft_wrap=True)
    for line in not_run_lines(plan):
        console.print(line, style="yellow", markup=False)


def tune_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.toml",
            help="The comparison whose methods are tuned; its table [tuning] says how (docs/comparing.md).",
            autocompletion=completion.files,
        ),
    ],
    trials: Annotated[
        int | None,
        typer.Option(min=1, help="Trials of each method in each scenario.", show_default="those of the file, or 12"),
    ] = None,
    seeds: Annotated[
        str | None, seeds_option("Other seeds than those of the comparison.", "those of the file, or 1000")
    ] = None,
    methods: MethodsOption = None,
    scenarios: ScenariosOption = None,
    assignments: Assignments = None,
    device: Device = "auto",
    budget: Budget = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for trials and results. Trials that are complete there are not computed again.",
            show_default="runs/tune-NAME",
        ),
    ] = None,
    data_dir: DataDir = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which trials are complete or missing.")] = False,
) -> None:
    """Tune each method of a comparison with the same number of trials, on validation data; never on test data."""
    from pens.comparing.file import read_comparison
    from pens.comparing.scenes import scenes_of
    from pens.planning.plan import Means
    from pens.planning.shared_data import SharedData
    from pens.settings.seeds import read_seeds
    from pens.tuning.search import Search
    from pens.tuning.store import TrialStore
    from pens.tuning.wishes import range_of, wishes_of

    comparison, data, console = read_comparison(file), SharedData(data_dir), new_console()
    its_seeds = None if seeds is None else read_seeds(f"{range_of(int(seeds))}"[1:-1] if seeds.isdigit() else seeds)
    wishes = wishes_of(comparison, file.parent).with_options(trials, its_seeds)
    wishes.check(comparison.seeds)
    scenes = scenes_of(comparison, data, choice_of(methods, scenarios, None, assignments))
    store = TrialStore(out or Path("runs") / f"tune-{comparison.name}")
    search = Search(scenes, wishes, store, Means(device, data_dir, seconds_of(budget)), data)
    search.prepare()

    from pens.command_line.watch import PlanWatcher, watching
    from pens.planning.show import plan_words
    from pens.tuning.record import write_record
    from pens.tuning.show import tuning_notes, tuning_table

    console.print(plan_words(search), style="dim", markup=False)
    if not dry_run:
        with watching(PlanWatcher(console)) as watcher:
            try:
                search.run(watcher)
            except Interrupted:
                raise Interrupted(again_words()) from None
    tried = search.tried()
    console.print(tuning_table(tried))
    if dry_run:
        return
    for note in tuning_notes(tried):
        console.print(note, style="dim", markup=False)
    record, tuned = write_record(comparison, tried, wishes, store.folder)
    if missing := sum(len(work.runs) for work in search.works()):
        words = f"{missing} missing; repeat the same command to continue. Methods without all trials are as given."
        console.print(words, style="yellow", markup=False)
    console.print(f"trials: {record}; tuned: pens compare {tuned}", style="dim", markup=False, soft_wrap=True)


def choice_of(methods: str | None, scenarios: str | None, seeds: str | None, assignments: list[str] | None) -> Choice:
    """What the options narrow a file down to, and change. Call it once the file is read, which finds its methods."""
    from pens.comparing.scenes import Choice
    from pens.methods.names import parse_methods
    from pens.settings.keys import locate
    from pens.settings.reading import parse_assignments
    from pens.settings.seeds import read_seeds

    changed = parse_assignments(assignments or [])
    return Choice(
        None if scenarios is None else tuple(name.strip() for name in scenarios.split(",")),
        None if methods is None else parse_methods(methods),
        None if seeds is None else read_seeds(seeds),
        {".".join(locate(key)): value for key, value in changed.items()},
    )


def seconds_of(budget: float | None) -> float | None:
    """The seconds of `--budget`, which counts minutes."""
    if budget is not None and not budget > 0:
        raise SettingsError(f"--budget {budget:g}: give a number of minutes above 0")
    return None if budget is None else 60 * budget


def again_words() -> str:
    """What a command says that was stopped."""
    command = shlex.join(["pens", *sys.argv[1:]])
    return f"stopped; all progress is saved. Continue with the same command: {command}"


def print_findings(console: Console, found: Findings, markdown: bool) -> None:
    """Print the table of a comparison, and its notes."""
    from pens.comparing.show import findings_markdown, findings_notes, findings_table

    notes: list[Any] = findings_notes(found)
    if markdown:
        typer.echo("\n\n".join([findings_markdown(found), *notes]))
        return
    console.print(findings_table(found, console.width))
    for note in notes:
        console.print(note, style="dim", markup=False)

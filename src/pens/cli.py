"""The command line: parsing and printing only."""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Console
from rich.table import Table

from pens import experiment
from pens.config import (
    DEFAULT_METHODS,
    EngineSettings,
    Settings,
    parse_assignments,
    parse_methods,
    parse_seeds,
)
from pens.data.sources import survey
from pens.errors import Interrupted, PensError, SettingsError
from pens.network.commands import certs, collect_command, peer_command, up_command
from pens.presets import PRESETS
from pens.presets import preset as find_preset
from pens.report.paper import PAPER_SEEDS
from pens.report.tables import print_results, size
from pens.reproduce.compare import Comparison
from pens.reproduce.keep import Kept, check_place, load, load_all, together, write
from pens.reproduce.pictures import write_files, write_pictures
from pens.reproduce.plan import EXHIBITS, exhibits
from pens.reproduce.run import Reproduction, Request
from pens.reproduce.show import (
    comparison_notes,
    comparison_table,
    not_run_lines,
    outdated_lines,
    plan_tables,
    plan_words,
)
from pens.reproduce.store import RunStore
from pens.results import ExperimentResult
from pens.runlog import ExperimentDir
from pens.watch import PlanWatcher, Watcher, watching

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(certs)
app.command("up")(up_command)
app.command("peer")(peer_command)
app.command("collect")(collect_command)

DataDir = Annotated[Path | None, typer.Option(help="Folder to look for data sets in, before all others.")]


@app.callback()
def about() -> None:
    """Decentralised federated learning in which peers find their own kind (PENS)."""


@app.command("run")
def run_command(
    settings: Annotated[str | None, typer.Argument(help="A preset (see `pens presets`) or a .toml file.")] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated: pens, pens+, random, local, oracle, central; default: local, random, pens, oracle."
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds: 0, 1, …; default: 1.")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change settings, e.g. --set peers=8 m=1."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="New or empty folder for the run; default: runs/NAME-TIME.")] = None,
    data_dir: DataDir = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Continue the run in this folder.")] = None,
) -> None:
    """Run methods with several seeds, and end with a table."""
    console = _console()
    if resume:
        if settings or assignments or out or methods is not None or seeds is not None:
            raise SettingsError(
                "--resume takes all settings from the folder: leave out the preset, --set, --methods, --seeds and --out"
            )
        folder = resume
    else:
        name = Path(settings or "digits").stem
        folder = out or Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    with watching(Watcher(console)) as watcher:
        try:
            if resume:
                result = experiment.resume(resume, device=device, data_dir=data_dir, observer=watcher)
            else:
                result = experiment.run(
                    settings or "digits",
                    methods=DEFAULT_METHODS if methods is None else methods,
                    seeds=1 if seeds is None else seeds,
                    overrides=parse_assignments(assignments or []),
                    device=device,
                    out=folder,
                    data_dir=data_dir,
                    observer=watcher,
                )
        except Interrupted:
            raise Interrupted(f"stopped. Continue with: pens run --resume {shlex.quote(str(folder))}") from None
    print_results(console, result, result.settings.scenario.dataset)
    place = shlex.quote(str(folder))
    ways = f"pictures: pens show {place}; one page: pens report {place}"
    console.print(f"run directory: {place}; {ways}", style="dim", markup=False, soft_wrap=True)


@app.command("show")
def show_command(folder: Annotated[Path, typer.Argument(help="A run directory.")]) -> None:
    """Print a run's table again, and draw its heatmap and curves as PNG."""
    from pens.report.figures import write_curves, write_heatmaps

    console = _console()
    directory = ExperimentDir(folder)
    record, runs = directory.read(), directory.results()
    missing = len(record.methods) * len(record.seeds) - len(runs)
    if missing:
        command = f"pens run --resume {shlex.quote(str(folder))}"
        console.print(
            f"{missing} of {missing + len(runs)} runs are not complete: {command}", markup=False, soft_wrap=True
        )
    if not runs:
        return
    result = ExperimentResult(record.settings, tuple(runs), folder)
    print_results(console, result, "own data" if "data" in record.own_parts else record.settings.scenario.dataset)
    pictures = [folder / "curves.png"]
    write_curves(result, folder / "curves.png", "seconds" if record.real_peers else "virtual time")
    if write_heatmaps(result, folder / "heatmap.png"):
        pictures.append(folder / "heatmap.png")
    console.print(f"pictures: {', '.join(map(str, pictures))}", style="dim", markup=False, soft_wrap=True)


@app.command("report")
def report_command(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories, or folders of them.")],
    out: Annotated[Path, typer.Option(help="The page; pictures and their numbers go into a folder beside it.")] = Path(
        "report.html"
    ),
) -> None:
    """Write one page about runs: accuracy, curves, neighbours, who gained, costs, tests, how to repeat."""
    from pens.report.page import write_report

    page, *files = write_report(folders, out)
    place = f"{page}; {len(files)} pictures and tables in {files[0].parent}"
    _console().print(f"report: {place}", style="dim", markup=False, soft_wrap=True)


@app.command("reproduce")
def reproduce_command(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help=f"{', '.join(sorted(EXHIBITS))}, or all.")],
    seeds: Annotated[int, typer.Option(help="Number of seeds: 0, 1, …; the paper has 4.")] = PAPER_SEEDS,
    methods: Annotated[str | None, typer.Option(help="Comma-separated; default: all that the paper reports.")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change settings, for trials, e.g. --set dataset=digits."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="Begin nothing that takes longer than is left of this.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs; what is complete there is kept.")] = Path(
        "runs/reproduce"
    ),
    data_dir: DataDir = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write small JSON files and pictures, to be committed.")
    ] = None,
    kept: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Run nothing: show what --keep wrote there.")
    ] = None,
    fill: Annotated[bool, typer.Option("--fill", help="Run only what the files in --keep do not have yet.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what there is and what is missing.")] = False,
) -> None:
    """Run the paper's tables and figures again, and set the results beside the paper's."""
    console = _console()
    chosen = exhibits(names)
    if kept:
        if dry_run or keep or fill or methods or assignments or budget is not None:
            raise SettingsError(
                "--from shows what was kept: leave out --dry-run, --keep, --fill, --methods, --set and --budget"
            )
        for exhibit in chosen:
            found = load(kept, exhibit.name)
            _print_comparison(console, found)
            for line in outdated_lines(found, kept):
                console.print(line, style="yellow", markup=False, soft_wrap=True)
        return
    if budget is not None and not budget > 0:
        raise SettingsError(f"--budget {budget:g}: give a number of minutes above 0")
    if fill and not keep:
        raise SettingsError("--fill runs what the files in --keep do not have yet: name their folder with --keep DIR")
    changed = parse_assignments(assignments or [])
    if keep:
        check_place(keep, [exhibit.name for exhibit in chosen], changed)
    request = Request(
        chosen,
        parse_seeds(seeds),
        None if methods is None else parse_methods(methods),
        changed,
        device,
        data_dir,
        None if budget is None else 60 * budget,
        tuple(load_all(keep, changed)) if keep and fill else (),
    )
    plan = Reproduction(request, RunStore(out))
    plan.prepare()
    if dry_run:
        for title, table in plan_tables(plan):
            console.print(title, style="bold", soft_wrap=True)
            console.print(table)
        console.print(plan_words(plan), style="dim", markup=False)
        return
    console.print(plan_words(plan), style="dim", markup=False)
    with watching(PlanWatcher(console)) as watcher:
        try:
            plan.run(watcher)
        except Interrupted:
            if keep:
                _keep(plan, plan.comparisons(), keep)
            command = shlex.join(["pens", *sys.argv[1:]])
            raise Interrupted(f"stopped; what is done is kept. Continue with the same command: {command}") from None
    _print_comparisons(console, plan, keep)


def _keep(plan: Reproduction, comparisons: Sequence[Comparison], folder: Path) -> list[Kept]:
    """What is known of each table and figure, with its pictures, written if that is anything."""
    found = [together(folder, comparison) for comparison in comparisons]
    for kept in (each for each in found if not each.comparison.is_empty):
        write(kept)
        write_pictures(kept.comparison, plan.store, folder)
    return found


def _print_comparisons(console: Console, plan: Reproduction, keep: Path | None) -> None:
    """What was run; with --fill, what is kept besides."""
    comparisons = plan.comparisons()
    all_kept = _keep(plan, comparisons, keep) if keep else [None] * len(comparisons)
    for comparison, kept in zip(comparisons, all_kept, strict=True):
        _print_comparison(console, kept.comparison if kept and plan.request.kept else comparison)
        if not comparison.is_empty:
            files = write_files(comparison, plan.store, plan.store.folder)
            console.print(f"files: {', '.join(map(str, files))}", style="dim", markup=False, soft_wrap=True)
        if kept and not kept.comparison.is_empty:
            console.print(f"kept: {kept.path}", style="dim", markup=False, soft_wrap=True)
            if kept.left_out:
                words = f"no longer in it, because of other settings or rules: {', '.join(kept.left_out)}"
                console.print(words, style="yellow", markup=False)
    for line in not_run_lines(plan):
        console.print(line, style="yellow", markup=False)


def _print_comparison(console: Console, comparison: Comparison) -> None:
    console.print(comparison.title, style="bold", markup=False, soft_wrap=True)
    console.print(comparison_table(comparison))
    for note in comparison_notes(comparison):
        console.print(note, style="dim", markup=False)


@app.command("bench")
def bench_command(
    network: Annotated[
        str, typer.Argument(help="digits, fashion-mnist or cifar-10: the paper's networks.")
    ] = "cifar-10",
    model: Annotated[
        str | None, typer.Option(metavar="FILE:NAME", help="An own nn.Module class in a Python file.")
    ] = None,
    shape: Annotated[str | None, typer.Option(help="Of one input of an own model; default: 3,32,32.")] = None,
    tokens: Annotated[
        int | None, typer.Option(metavar="COUNT", help="Inputs of an own model are whole numbers below this.")
    ] = None,
    peers: Annotated[int, typer.Option(help="Models in the stack.")] = 20,
    samples: Annotated[int, typer.Option(help="Samples per peer.")] = 80,
    batch_size: Annotated[int, typer.Option(help="Samples per step.")] = 8,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[str, typer.Option(help="fp32, tf32 or bf16, on a GPU.")] = "tf32",
    compile_: Annotated[
        str, typer.Option("--compile", help="auto, always or never: kernels for a CPU; auto as in a long run.")
    ] = "auto",
    seconds: Annotated[float, typer.Option(help="For each measurement.")] = 3.0,
) -> None:
    """Measure loop and stack on this device, in one run; and tell which path each layer took."""
    from pens.bench import SHAPES, BenchSettings, builtin_factory, load_factory, run_bench
    from pens.report.tables import bench_table, layers_table

    engine = {"precision": precision, "compile": compile_}
    for name, value in engine.items():
        choices = get_args(EngineSettings.model_fields[name].annotation)
        if value not in choices:
            raise SettingsError(f"--{name} {value}: choose from {', '.join(choices)}")
    how = EngineSettings.model_validate(engine)
    factory = load_factory(model) if model else builtin_factory(network)
    sizes = _parse_shape(shape) if shape else SHAPES.get(network, ())
    result = run_bench(BenchSettings(factory, sizes, peers, samples, batch_size, device, how, seconds, tokens))
    console = _console()
    console.print(layers_table(result))
    console.print(bench_table(result, peers, batch_size))
    console.print(
        f"TFLOP/s count the network's own operations; a large matrix product reaches {result.peak_tflops:.2f} on this "
        f"device. Compare ratios between machines, not rates. Peak memory: {size(result.peak_memory_bytes)}.",
        style="dim",
    )


def _parse_shape(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise SettingsError(f"--shape {text}: expected sizes of at least 1 with commas, for instance --shape 3,32,32")
    return sizes


@app.command("presets")
def presets_command(
    name: Annotated[str | None, typer.Argument(help="Print this preset as a .toml file, with all settings.")] = None,
) -> None:
    """List the built-in settings, or print one of them in full."""
    if name:
        typer.echo(settings_as_toml(find_preset(name).settings))
        return
    table = Table("preset", "what it is for")
    for preset in PRESETS.values():
        table.add_row(preset.name, preset.about)
    console = _console()
    console.print(table)
    console.print("[dim]All settings of one, as a .toml file to change: pens presets digits > my.toml[/dim]")


@app.command("data")
def data_command(data_dir: DataDir = None) -> None:
    """Show which data sets are here, and where."""
    table = Table("data set", "where", "what")
    for found in survey(data_dir):
        where = "–" if found.folder is None else "in the package" if found.name == "digits" else str(found.folder)
        table.add_row(found.name, where, found.detail)
    _console().print(table)


def settings_as_toml(settings: Settings) -> str:
    """Settings as the text of a .toml file."""
    lines = []
    for section, values in settings.model_dump(mode="json").items():
        lines.append(f"[{section}]")
        lines += [f"# {k} =" if v is None else f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in values.items()]
        lines.append("")
    return "\n".join(lines)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False, emoji=False)


def _spread_assignments(arguments: Sequence[str]) -> list[str]:
    """`--set a=1 b=2` → `--set a=1 --set b=2`"""
    spread: list[str] = []
    setting = False
    for argument in arguments:
        if setting and "=" in argument and not argument.startswith("-"):
            spread += [argument] if spread[-1] == "--set" else ["--set", argument]
            continue
        setting = argument == "--set"
        spread.append(argument)
    return spread


def main(arguments: Sequence[str] | None = None) -> Any:
    """The command `pens`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± still gets its table
    errors = Console(stderr=True, highlight=False, emoji=False)
    try:
        app(args=_spread_assignments(sys.argv[1:] if arguments is None else arguments), prog_name="pens")
    except Interrupted as stop:
        errors.print(str(stop), markup=False, soft_wrap=True)
        sys.exit(130)
    except PensError as error:
        errors.print("[red]error[/red]", end=" ")
        errors.print(str(error), markup=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("stopped at once; a run in progress resumes from its last checkpoint", markup=False)
        sys.exit(130)

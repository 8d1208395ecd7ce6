# SPDX-License-Identifier: Apache-2.0
"""The commands of `pens`, apart from those for real peers: parsing and printing only.

A command checks its arguments first, and imports the modules that compute or draw only then. So `pens --help` and a
mistyped setting are answered without loading PyTorch.
"""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from pens.command_line import completion
from pens.command_line.certificates import certs
from pens.command_line.comparing import again_words, compare_command, seconds_of, tune_command
from pens.command_line.models import export_command, predict_command
from pens.command_line.network import collect_command, peer_command, up_command
from pens.command_line.operating import backup_command, status_command
from pens.command_line.options import Assignments, Budget, DataDir, Device, methods_option, seeds_option, settings_help
from pens.command_line.printing import new_console, print_place, print_run, print_warning
from pens.errors import Interrupted, PensError, SettingsError
from pens.experiment.defaults import DEFAULT_METHODS, DEFAULT_PRESET
from pens.version import VERSION

if TYPE_CHECKING:
    from rich.console import Console

    from pens.planning.store import RunStore
    from pens.reproduce.compare import Beside, Comparison
    from pens.reproduce.keep import Kept
    from pens.reproduce.run import Reproduction
    from pens.settings.catalogue import Entry

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="First steps: `pens run digits` compares four methods in less than a minute; `pens presets` and "
    "`pens settings` show what else can be run.",
)

_SIMULATE, _RESULTS, _REAL, _LOOK_UP = "Simulate", "Results", "Real peers", "Look up"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pens {VERSION}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Decentralised federated learning in which peers discover which others have similar data (PENS)."""


@app.command("run", rich_help_panel=_SIMULATE)
def run_command(
    settings: Annotated[
        str | None,
        typer.Argument(
            metavar="PRESET|FILE.toml",
            help=settings_help("What to run"),
            show_default=DEFAULT_PRESET,
            autocompletion=completion.presets,
        ),
    ] = None,
    methods: Annotated[str | None, methods_option(",".join(DEFAULT_METHODS))] = None,
    seeds: Annotated[str | None, seeds_option("Each method runs once per seed.", "1")] = None,
    assignments: Assignments = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Your own data, the setting `source`: table.csv, table.parquet, a folder of images by peer and class, "
            "archive.npz, hf:NAME, or file.py:function; for a table with --set peer_column=NAME target_column=NAME "
            "where these columns are not called peer and label.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NET", help="The network, the setting `net`: a name or file.py:Name."),
    ] = None,
    device: Device = "auto",
    out: Annotated[
        Path | None, typer.Option(help="New or empty folder for the results.", show_default="runs/NAME-TIME")
    ] = None,
    data_dir: DataDir = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Continue the run in this folder, with its settings.")
    ] = None,
) -> None:
    """Simulate a federation: run methods with several seeds, and print a table of what they reached."""
    from pens.experiment.presets import choices_in, default_methods, resolve_settings
    from pens.methods.names import check_methods, parse_methods, participants
    from pens.partitions.partition import data_words, partition_of
    from pens.parts import HUB, located_parts
    from pens.settings.reading import parse_assignments
    from pens.settings.seeds import parse_seeds, read_seeds

    if resume:
        if any(given is not None for given in (settings, assignments, out, methods, seeds, data, model)):
            raise SettingsError(
                "--resume takes all settings from the folder: leave out the preset, --set, --methods, --seeds, --data, "
                "--model and --out"
            )
        folder = resume
    else:
        # before the settings, because methods may have sections of their own
        chosen = choices_in(settings)
        names = chosen.methods if methods is None else methods
        named = None if names is None else parse_methods(names)
        changes = located_parts(data, model)
        changes |= parse_assignments(assignments or [])
        wanted = resolve_settings(settings, changes)
        numbers = parse_seeds(1 if chosen.seeds is None else chosen.seeds) if seeds is None else read_seeds(seeds)
        if not wanted.data.is_own:  # before anything that takes long to load
            partition_of(wanted).check(wanted)
            who = participants(wanted)
            check_methods(wanted, named or default_methods(who.smallest_cluster), who)
        name = Path(settings).stem if settings else Path(wanted.data.source.removeprefix(HUB).partition(":")[0]).stem
        folder = out or Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"

    from pens.command_line.watch import Watcher, watching
    from pens.experiment.holdings import fitted_words
    from pens.experiment.interface import resume as resume_experiment
    from pens.experiment.interface import run as run_experiment
    from pens.report.tables import print_results

    console = new_console()
    with watching(Watcher(console)) as watcher:
        try:
            if resume:
                result = resume_experiment(resume, device=device, data_dir=data_dir, observer=watcher)
            else:
                result = run_experiment(
                    settings,
                    methods=named,
                    overrides=changes,
                    seeds=numbers,
                    device=device,
                    out=folder,
                    data_dir=data_dir,
                    observer=watcher,
                )
        except Interrupted:
            raise Interrupted(f"stopped. Continue with: pens run --resume {shlex.quote(str(folder))}") from None
    print_results(console, result, data_words(result.settings), watcher.told)
    if left_out := "" if resume or named else ", ".join(m for m in DEFAULT_METHODS if m not in result.methods):
        is_own = wanted.data.is_own
        scene = "the clusters are not known" if is_own else f"partition {wanted.scenario.partition} has no clusters"
        console.print(f"without {left_out}: {scene}", style="dim", markup=False)
    if not resume and (words := fitted_words(wanted, result.settings)):
        console.print(words, style="dim", markup=False)
    print_place(console, folder)


@app.command("show", rich_help_panel=_RESULTS)
def show_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, as `pens run` names it at its end.")],
) -> None:
    """Print a run's table again, and draw its learning curves and merge counts as PNG files in its folder."""
    from pens.report.figures import write_curves, write_heatmaps

    console = new_console()
    record, result = print_run(console, folder)
    if not result.runs:
        return
    pictures = [folder / "curves.png"]
    write_curves(result, folder / "curves.png", "seconds" if record.real_peers else "virtual time")
    if write_heatmaps(result, folder / "heatmap.png"):
        pictures.append(folder / "heatmap.png")
    console.print(f"pictures: {', '.join(map(str, pictures))}", style="dim", markup=False, soft_wrap=True)


@app.command("report", rich_help_panel=_RESULTS)
def report_command(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR", help="Run directories, or folders of them.")],
    out: Annotated[Path, typer.Option(help="The page; pictures and their numbers go into a folder beside it.")] = Path(
        "report.html"
    ),
) -> None:
    """Write one HTML page about runs: accuracy, learning curves, neighbours, costs, tests, and how to repeat them."""
    from pens.report.page import write_report

    page, *files = write_report(folders, out)
    place = f"{page}; {len(files)} pictures and tables in {files[0].parent}"
    new_console().print(f"report: {place}", style="dim", markup=False, soft_wrap=True)


app.command("predict", rich_help_panel=_RESULTS)(predict_command)
app.command("export", rich_help_panel=_RESULTS)(export_command)


app.command("compare", rich_help_panel=_SIMULATE)(compare_command)
app.command("tune", rich_help_panel=_SIMULATE)(tune_command)


@app.command("reproduce", rich_help_panel=_SIMULATE)
def reproduce_command(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME",
            help=f"Tables and figures of the paper: {', '.join(completion.EXHIBITS)}, or all.",
            autocompletion=completion.exhibits,
        ),
    ],
    seeds: Annotated[str, seeds_option("The paper has 4.")] = "4",
    methods: Annotated[str | None, methods_option("all that the paper reports")] = None,
    as_: Annotated[
        str,
        typer.Option(
            "--as", help="ours: calibrated to the paper's numbers; authors: the rules of their published code."
        ),
    ] = "ours",
    assignments: Assignments = None,
    device: Device = "auto",
    budget: Budget = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the runs. Runs that are complete there are not run again.")
    ] = Path("runs/reproduce"),
    data_dir: DataDir = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write small JSON files and pictures, to be committed.")
    ] = None,
    kept: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="Run nothing: show what --keep wrote there; with --keep, write and draw it anew.",
        ),
    ] = None,
    beside: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Also show what --keep wrote there by other rules, between the paper's and ours.",
        ),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print tables in Markdown.")] = False,
    fill: Annotated[bool, typer.Option("--fill", help="Run only what the files in --keep do not have yet.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which runs are complete or missing.")] = False,
) -> None:
    """Run the experiments behind the paper's tables and figures again, and print the results beside the paper's."""
    from pens.experiment.presets import METHODS_OF, rules_of
    from pens.methods.names import parse_methods
    from pens.settings.reading import parse_assignments
    from pens.settings.seeds import read_seeds

    numbers, changed = read_seeds(seeds), {**rules_of(as_), **parse_assignments(assignments or [])}
    chosen_methods = METHODS_OF[as_] if methods is None else parse_methods(methods)

    from pens.command_line.watch import PlanWatcher, watching
    from pens.paper.exhibits import exhibits
    from pens.planning.show import plan_words
    from pens.planning.store import RunStore
    from pens.reproduce.keep import check_place, load, load_all
    from pens.reproduce.run import ReproduceRequest, Reproduction
    from pens.reproduce.show import outdated_lines, plan_tables

    console = new_console()
    chosen = exhibits(names)
    if kept:
        if dry_run or fill or methods or assignments or budget is not None or as_ != "ours":
            raise SettingsError(
                "--from shows what was kept: leave out --dry-run, --fill, --methods, --as, --set and --budget"
            )
        for exhibit in chosen:
            comparison = load(kept, exhibit.name)
            other = _beside(beside, exhibit.name)
            _print_comparison(console, comparison, other, markdown)
            for line in outdated_lines(comparison, kept):
                console.print(line, style="yellow", markup=False, soft_wrap=True)
            if keep:
                check_place(keep, [exhibit.name], comparison.changed)
                _write_again(comparison, keep, RunStore(out), other)
        return
    budget_s = seconds_of(budget)
    if fill and not keep:
        raise SettingsError("--fill runs what the files in --keep do not have yet: name their folder with --keep DIR")
    if keep:
        check_place(keep, [exhibit.name for exhibit in chosen], changed)
    request = ReproduceRequest(
        chosen,
        numbers,
        chosen_methods,
        changed,
        device,
        data_dir,
        budget_s,
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
                _keep(plan, plan.comparisons(), keep, beside)
            raise Interrupted(again_words()) from None
    _print_comparisons(console, plan, keep, beside, markdown)


def _beside(folder: Path | None, name: str) -> Beside | None:
    """The kept results to show beside a table or figure; None where there are none."""
    from pens.reproduce.compare import Beside, beside_label
    from pens.reproduce.keep import load_beside

    kept = load_beside(folder, name) if folder else None
    return Beside(beside_label(folder, kept), kept) if folder and kept else None


def _write_again(comparison: Comparison, folder: Path, store: RunStore, beside: Beside | None) -> None:
    """Write a kept comparison again, with this version's verdicts and pictures. Heatmaps need the runs themselves."""
    from pens.reproduce.keep import Kept, write
    from pens.reproduce.pictures import write_pictures

    if store.mark.is_there:
        store.open()
    write(Kept(folder / f"{comparison.name}.json", comparison, []))
    write_pictures(comparison, store, folder, beside)


def _keep(plan: Reproduction, comparisons: Sequence[Comparison], folder: Path, beside: Path | None) -> list[Kept]:
    """Write the results of each table and figure to a folder, with pictures. Those without results are left out."""
    from pens.reproduce.keep import combine, write
    from pens.reproduce.pictures import write_pictures

    all_kept = [combine(folder, comparison) for comparison in comparisons]
    for kept in (each for each in all_kept if not each.comparison.is_empty):
        write(kept)
        write_pictures(kept.comparison, plan.store, folder, _beside(beside, kept.comparison.name))
    return all_kept


def _print_comparisons(
    console: Console, plan: Reproduction, keep: Path | None, beside: Path | None, markdown: bool
) -> None:
    """Print what was run; with --fill, together with what was kept before."""
    from pens.planning.show import not_run_lines
    from pens.reproduce.pictures import write_files

    comparisons = plan.comparisons()
    all_kept = _keep(plan, comparisons, keep, beside) if keep else [None] * len(comparisons)
    for comparison, kept in zip(comparisons, all_kept, strict=True):
        other = _beside(beside, comparison.name)
        _print_comparison(console, kept.comparison if kept and plan.request.kept else comparison, other, markdown)
        if not comparison.is_empty:
            files = write_files(comparison, plan.store, plan.store.folder, other)
            console.print(f"files: {', '.join(map(str, files))}", style="dim", markup=False, soft_wrap=True)
        if kept and not kept.comparison.is_empty:
            console.print(f"kept: {kept.path}", style="dim", markup=False, soft_wrap=True)
            if kept.left_out:
                words = f"no longer in it, because of other settings or rules: {', '.join(kept.left_out)}"
                console.print(words, style="yellow", markup=False)
    for line in not_run_lines(plan):
        console.print(line, style="yellow", markup=False)


def _print_comparison(console: Console, comparison: Comparison, beside: Beside | None, markdown: bool) -> None:
    """Print one table or figure beside the paper's numbers."""
    from pens.reproduce.show import comparison_markdown, comparison_notes, comparison_table

    notes = comparison_notes(comparison, beside)
    if markdown:
        typer.echo("\n\n".join([f"**{comparison.title}**", comparison_markdown(comparison, beside), *notes]) + "\n")
        return
    console.print(comparison.title, style="bold", markup=False, soft_wrap=True)
    console.print(comparison_table(comparison, beside, console.width))
    for note in notes:
        console.print(note, style="dim", markup=False)


@app.command("bench", rich_help_panel=_SIMULATE)
def bench_command(
    network: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK", help="The network of digits, fashion-mnist or cifar-10; or your own, with --model."
        ),
    ] = "cifar-10",
    model: Annotated[
        str | None, typer.Option(metavar="FILE:NAME", help="An nn.Module class of your own, in a Python file.")
    ] = None,
    shape: Annotated[
        str | None, typer.Option(help="Shape of one input of your own network.", show_default="3,32,32")
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(metavar="COUNT", help="Inputs of your own network are tokens: whole numbers below this."),
    ] = None,
    peers: Annotated[int, typer.Option(help="Models that are trained at once.")] = 20,
    samples: Annotated[int, typer.Option(help="Samples per peer.")] = 80,
    batch_size: Annotated[int, typer.Option(help="Samples per step.")] = 8,
    device: Device = "auto",
    precision: Annotated[str, typer.Option(help="Precision of matrix products on a GPU: fp32, tf32 or bf16.")] = "tf32",
    compile_: Annotated[
        str,
        typer.Option("--compile", help="Compile C kernels for a CPU: auto (as in a long run), always or never."),
    ] = "auto",
    seconds: Annotated[float, typer.Option(help="How long each measurement takes.")] = 3.0,
) -> None:
    """Measure how fast this device trains models as a stack and one by one, and what each layer costs."""
    from pens.settings.schema import EngineSettings

    engine = {"precision": precision, "compile": compile_}
    for name, value in engine.items():
        choices = get_args(EngineSettings.model_fields[name].annotation)
        if value not in choices:
            raise SettingsError(f"--{name} {value}: choose from {', '.join(choices)}")
    how = EngineSettings.model_validate(engine)
    own_sizes = _parse_shape(shape) if shape else ()

    from pens.engine.bench import SHAPES, BenchSettings, builtin_factory, run_bench
    from pens.parts import load_function
    from pens.report.tables import bench_table, layers_table
    from pens.report.words import size

    factory = load_function(model, "--model") if model else builtin_factory(network)
    sizes = own_sizes or SHAPES.get(network, ())
    result = run_bench(BenchSettings(factory, sizes, peers, samples, batch_size, device, how, seconds, tokens))
    console = new_console()
    console.print(layers_table(result))
    console.print(bench_table(result, peers, batch_size))
    console.print(
        f"TFLOP/s count the network's own operations; a large matrix product reaches {result.peak_tflops:.2f} on this "
        f"device. Compare ratios between machines, not rates. Peak memory: {size(result.peak_memory_bytes)}.",
        style="dim",
    )


def _parse_shape(text: str) -> tuple[int, ...]:
    """The sizes in "3,32,32"."""
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise SettingsError(
            f"--shape {text}: expected sizes of at least 1, separated by commas, for instance --shape 3,32,32"
        )
    return sizes


@app.command("presets", rich_help_panel=_LOOK_UP)
def presets_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Print this preset as a .toml file, with every setting explained.",
            autocompletion=completion.presets,
        ),
    ] = None,
) -> None:
    """List the presets that `pens run` knows, or print one of them as a .toml file to change."""
    from pens.experiment.presets import PRESETS, preset
    from pens.settings.catalogue import as_toml

    if name is not None:
        chosen = preset(name)
        typer.echo(as_toml(chosen.settings, chosen.source), nl=False)
        return
    from rich.table import Table

    table = Table("preset", "what it is for")
    for each in PRESETS.values():
        table.add_row(each.name, each.about)
    console = new_console()
    console.print(table)
    console.print("[dim]All settings of one, as a .toml file to change: pens presets digits > my.toml[/dim]")


@app.command("settings", rich_help_panel=_LOOK_UP)
def settings_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="KEY|SECTION|PART",
            help="A setting, a section of settings, or a part that reads some, your own as file.py:name.",
            show_default="all settings",
            autocompletion=completion.settings,
        ),
    ] = None,
) -> None:
    """Explain settings: their meaning, allowed values and default. Change them with --set or in a .toml file."""
    from pens.settings import catalogue
    from pens.settings.toml import toml_value

    chosen = catalogue.entries() if name is None else catalogue.find(name)
    console = new_console()
    if len(chosen) == 1:
        _print_setting(console, chosen[0])
        return
    from rich.table import Table

    for section in dict.fromkeys(entry.section for entry in chosen):
        console.print(f"[{section}]", style="bold", markup=False, end=" ")
        console.print(catalogue.section_about(section), markup=False)
        table = Table("setting", "default", "allowed", "what it means", width=console.width)
        for entry in (each for each in chosen if each.section == section):
            table.add_row(entry.key, toml_value(entry.default), entry.allowed, entry.about)
        console.print(table, markup=False)
    console.print("Change them with `pens run digits --set KEY=VALUE`, or in a .toml file.", style="dim", markup=False)


def _print_setting(console: Console, entry: Entry) -> None:
    """Print the explanation of one setting, with the presets that change it."""
    from pens.experiment.presets import PRESETS
    from pens.settings.toml import toml_value

    console.print(f"{entry.section}.{entry.key}", style="bold", markup=False)
    console.print(entry.about, markup=False)
    console.print(f"allowed: {entry.allowed}", markup=False)
    console.print(f"default: {toml_value(entry.default)}", markup=False)
    for preset in PRESETS.values():
        values = preset.settings.model_dump(mode="json").get(entry.section, {})
        if (value := values.get(entry.key, entry.default)) != entry.default:
            console.print(f"in the preset {preset.name}: {toml_value(value)}", markup=False)


@app.command("methods", rich_help_panel=_LOOK_UP)
def methods_command() -> None:
    """List the methods that `pens run` knows: ours, and those of installed packages."""
    from rich.markup import escape
    from rich.table import Table

    from pens.methods.names import all_methods

    table = Table("method", "what it is", "real peers", "settings")
    for method in all_methods():
        section = f"[{method.section.title}]" if method.section else ""
        table.add_row(method.name, escape(method.about), "yes" if method.networked else "no", escape(section))
    console = new_console()
    console.print(table)
    console.print("Your own method: pens run digits --methods my_file.py:MyMethod", style="dim", markup=False)


@app.command("data", rich_help_panel=_LOOK_UP)
def data_command(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="PRESET|FILE.toml|SOURCE",
            help="Whose data to show: a preset, a file of settings, or own data as for `pens run --data`.",
            show_default="the data sets on this machine",
        ),
    ] = None,
    assignments: Assignments = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides who holds what.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw samples and classes per peer into this file.")
    ] = None,
    write_partition: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json|.parquet",
            help="Write which samples each peer holds; the setting partition_file reads it.",
        ),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Show which data sets are on this machine; or, of a preset or of own data, which peer holds what."""
    from rich.table import Table

    from pens.data.sources import survey

    if source is not None:
        _show_holders(source, assignments or [], seed, plot, write_partition, data_dir)
        return
    if plot or assignments or write_partition:
        raise SettingsError(
            "--plot, --write-partition and --set need a preset or own data: pens data table.csv --plot data.png"
        )
    table = Table("data set", "where", "what")
    for dataset in survey(data_dir):
        where = "–" if dataset.folder is None else "in the package" if dataset.name == "digits" else str(dataset.folder)
        table.add_row(dataset.name, where, dataset.detail)
    new_console().print(table)


def _show_holders(
    source: str, assignments: list[str], seed: int, plot: Path | None, partition: Path | None, data_dir: Path | None
) -> None:
    from pens.experiment.presets import PRESETS, resolve_settings
    from pens.parts import is_place, located_data
    from pens.settings.reading import parse_assignments

    is_data = source not in PRESETS and not source.endswith(".toml")
    changes = {**({"data.source": located_data(source)} if is_data else {}), **parse_assignments(assignments)}
    settings = resolve_settings(None if is_data else source, changes)

    from pens.data.partition_files import write_shares
    from pens.experiment.holdings import Holdings, shares_of
    from pens.partitions.partition import data_words
    from pens.report.who_holds_what import draw_holders, holders_table, more_words

    if is_data and not is_place(settings.data.source) and source not in settings.data.source:
        raise SettingsError(f"{source}: no preset, and no file or folder of data")
    holdings = Holdings(settings, data_dir=data_dir)
    federation = holdings.federation(settings, seed)
    console = new_console()
    console.print(holders_table(federation, f"{data_words(settings)}: {len(federation.peers):,} peers"))
    console.print(more_words(federation), style="dim")
    for doubt in holdings.doubts(settings, seed):
        print_warning(console, doubt)
    if plot:
        draw_holders(federation, plot)
        console.print(f"picture: {plot}", style="dim", markup=False)
    if partition:
        write_shares(partition, shares_of(settings, seed, data_dir))
        changed = holdings.changes(settings)
        words = f", without {changed}, which indices cannot say" if changed else ""
        console.print(f"partition: {partition}{words}", style="dim", markup=False)


app.command("up", rich_help_panel=_REAL)(up_command)
app.command("peer", rich_help_panel=_REAL)(peer_command)
app.command("collect", rich_help_panel=_REAL)(collect_command)
app.command("status", rich_help_panel=_REAL)(status_command)
app.command("backup", rich_help_panel=_REAL)(backup_command)
app.add_typer(certs, rich_help_panel=_REAL)


def _spread_assignments(arguments: Sequence[str]) -> list[str]:
    """Repeat `--set` before each assignment: `--set a=1 b=2` → `--set a=1 --set b=2`"""
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
    """Run the command `pens` and exit with the status of what ended it (`pens.errors`)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # so that a terminal without ± still shows the table
    # Settings that PyTorch reads at its import belong here: commands import it when they run.
    try:
        app(args=_spread_assignments(sys.argv[1:] if arguments is None else arguments), prog_name="pens")
    except Interrupted as stop:
        _print_error(str(stop))
        sys.exit(stop.exit_status)
    except PensError as error:
        _print_error(str(error), "error ")
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        _print_error("stopped at once. A run in progress continues from its last checkpoint: pens run --resume DIR")
        sys.exit(130)


def _print_error(message: str, label: str = "") -> None:
    from rich.console import Console

    console = Console(stderr=True, highlight=False, emoji=False)
    console.print(label, style="red", end="", markup=False)
    console.print(message, markup=False, soft_wrap=True)

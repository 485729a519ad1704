"""The content of a record, as types: what each field is, its unit and its range.

Seconds are wall-clock seconds, and images per second count the images of all devices. A section
that the run has not reached is absent.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from helpers.frameworks.cpu_cores import CpuDevice
from helpers.recipe import Recipe

SCHEMA = 3

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Rate = Annotated[float, Meta(ge=1e-6)]
"""Images per second, over all devices."""
Fraction = Annotated[float, Meta(ge=0, le=1)]
Share = Fraction | None


class RunInfo(TypedDict):
    notebook: str
    started: str  # ISO 8601
    process: Count
    host: str
    id: NotRequired[str]  # drawn at random; its weights and its checkpoint carry it too
    variant: NotRequired[str | None]  # among the notebook's runs on as many devices: seed1-repeat2
    finished: NotRequired[str | None]  # ISO 8601
    process_started: NotRequired[float]  # seconds since 1970
    commit: NotRequired[str | None]  # of the checkout, with + where files were changed
    code: NotRequired[str]  # SHA-256 of the cells that ran and of the packages they import


class Cluster(TypedDict):
    nodes: Annotated[int, Meta(ge=1, le=1024)]
    simulated: bool  # whether all nodes are one machine: it shows that, not how fast, they work
    launcher: Literal["mpiexec", "srun", "torchrun"]
    launcher_version: str
    interface: str  # of the network, or each host's where they differ
    hosts: Annotated[list[str], Meta(min_length=1)]  # names


class OtherProcess(TypedDict):
    name: str | None
    seen: Literal["before", "during"]  # before the run began, or first while it ran


class OtherProcesses(TypedDict):
    processes: list[OtherProcess]  # that the runner saw on the run's GPUs
    reason: str | None  # why they could not be asked for


class OtherPrograms(TypedDict):
    cores: Positive  # logical, of all CPU devices
    used: Annotated[float, Meta(ge=0)] | None  # on average, in epochs and measured rounds
    reason: str | None  # why that is not known


class Framework(TypedDict):
    name: str
    kernel: str  # the environment
    versions: dict[str, str]  # by package


class Hardware(TypedDict):
    cpu: str
    cores: int  # logical
    memory_bytes: int
    platform: str
    gpus: list[str]  # names
    driver: str | None
    usable_cores: NotRequired[Positive]  # that affinity, control group and Slurm allow


class DeviceList(TypedDict):
    kind: Literal["gpu", "cpu"]
    count: Positive  # of replicas
    names: list[str]  # one a replica
    cpus: NotRequired[Annotated[list[CpuDevice], Meta(min_length=1)]]  # where none shares cores


@dataclass(frozen=True, kw_only=True)
class RecipeSettings(Recipe):
    """The recipe's fields, and what they are on so many devices."""

    devices: Positive
    global_batch_size: Positive
    scaled_learning_rate: float


class Data(TypedDict):
    folder: str
    kind: Literal["generated", "real"]
    pixels: int  # of a side, or of the shorter one
    images: dict[Literal["train", "valid", "test"], int]
    format: NotRequired[str]
    classes: NotRequired[Annotated[list[str], Meta(min_length=1)]]  # in the order of the outputs
    loader_workers: NotRequired[Count]  # of all devices together
    sha256: NotRequired[str]  # over the names, groups, labels and sizes of all images


class Weights(TypedDict):
    source: Literal["imagenet", "random", "own"]
    sha256: str


class FairnessCheck(TypedDict):
    check: str
    difference: float | None
    threshold: float | None
    verdict: Literal["pass", "expected", "different", "fail", "not checked"]
    reason: NotRequired[str | None]
    variant: NotRequired[str]  # what was trained differently, of a check that is different


class Fairness(TypedDict):
    comparable: bool
    checks: list[FairnessCheck]


class Epoch(TypedDict):
    epoch: Positive
    learning_rate: float
    steps: int
    images: Count
    train_loss: float
    train_seconds: Seconds
    images_per_second: Rate
    valid_loss: float
    valid_seconds: Seconds
    valid_auc: NotRequired[Share]  # multilabel: the mean; None where no finding has images enough
    valid_top1: NotRequired[Fraction]  # multiclass: images whose class was named first
    valid_top5: NotRequired[Share]  # or among the first five; None with five classes or fewer
    data_seconds: NotRequired[float | None]  # waiting for a batch; None where the loop hides it


class Training(TypedDict):
    seconds: float  # training and validation
    images_per_second: Rate  # median of the last process's epochs but its first, if it has others
    first_step_seconds: float | None  # with tracing and tuning
    execution: NotRequired[str]  # eager, graph or compiled, and by what
    step_seconds: NotRequired[dict[Literal["median", "minimum", "maximum"], Seconds]]
    first_batches: NotRequired[list[str]]  # digests of the first epoch's first global batches


class Finding(TypedDict):
    finding: str
    auc: Share
    low: Share
    high: Share
    positives: int  # images
    negatives: int
    reason: str | None


ClassResult = TypedDict(  # without an image top1, low and high are None
    "ClassResult", {"class": str, "images": Count, "top1": Share, "low": Share, "high": Share}
)


class Test(TypedDict):
    """The test split: ``mean_*`` and ``findings`` if multilabel, ``top*`` and ``classes`` if not.

    ``*_low`` and ``*_high`` are the ends of a 95 % interval from a bootstrap over patients or other
    groups of images.
    """

    resamples: Annotated[list[Share], Meta(min_length=1)]  # of the first metric
    sample: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]  # equal: resamples pair
    mean_auc: NotRequired[Share]  # over the findings in_mean, or all that can be computed
    mean_low: NotRequired[Share]
    mean_high: NotRequired[Share]
    in_mean: NotRequired[list[str]]  # findings with enough positive and negative images
    findings: NotRequired[list[Finding]]
    top1: NotRequired[Fraction]  # images whose class was named first
    top1_low: NotRequired[Share]
    top1_high: NotRequired[Share]
    top5: NotRequired[Share]  # or among the first five; None with five classes or fewer
    top5_low: NotRequired[Share]
    top5_high: NotRequired[Share]
    classes: NotRequired[Annotated[list[ClassResult], Meta(min_length=2)]]


class Throughput(TypedDict):
    images_per_second: Rate  # the median of the rounds
    rounds: Annotated[list[Rate], Meta(min_length=1)]


class Attribution(TypedDict):
    # fractions of an epoch after the first: medians of the rounds; None if unknown
    shares: dict[str, float | None]
    sentence: str
    # 95 % intervals of the medians (of validation: of the epochs)
    intervals: dict[str, Annotated[list[float], Meta(min_length=2, max_length=2)]]


class Checkpoint(TypedDict):
    resumed_after: Count  # epochs that earlier attempts had done
    restarts: NotRequired[list[Count]]  # the epoch after which each resumed attempt continued
    changed_code: NotRequired[bool]  # whether an earlier attempt ran other code


class Energy(TypedDict, total=False):
    joules: float | None  # of all GPUs, in training
    images_per_joule: float | None
    reason: str | None


class Record(TypedDict):
    """One run; it is whole when ``state`` is finished."""

    schema: Literal[3]
    run: RunInfo
    state: Literal["running", "finished", "failed", "interrupted", "skipped"]
    framework: Framework
    reason: NotRequired[str | None]  # why it failed, was interrupted or was skipped
    cluster: NotRequired[Cluster]
    other_processes: NotRequired[OtherProcesses]
    other_programs: NotRequired[OtherPrograms]
    hardware: NotRequired[Hardware]
    devices: NotRequired[DeviceList]
    recipe: NotRequired[RecipeSettings]
    data: NotRequired[Data]
    weights: NotRequired[Weights]
    fairness: NotRequired[Fairness]
    epochs: NotRequired[Annotated[list[Epoch], Meta(min_length=1)]]
    training: NotRequired[Training]
    test: NotRequired[Test]
    files: NotRequired[Throughput]  # training on files
    synthetic: NotRequired[Throughput]
    no_allreduce: NotRequired[Throughput]  # synthetic data; absent on one device
    loader: NotRequired[Throughput]
    attribution: NotRequired[Attribution]
    checkpoint: NotRequired[Checkpoint]
    energy: NotRequired[Energy]
    memory: NotRequired[dict[str, Count | None]]  # peak_bytes, of the fullest device
    monitor: NotRequired[dict[str, Any]]  # gpumon's metadata: what was read, how and how often

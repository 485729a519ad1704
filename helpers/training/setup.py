"""The setup of a run after its parameters are resolved (``helpers.training.parameters``)."""

from dataclasses import dataclass
from pathlib import Path

from helpers.frameworks.cpu_cores import CpuDevice
from helpers.frameworks.devices import Devices
from helpers.recipe import ScaledRecipe


@dataclass(frozen=True)
class Setup:
    """What a run uses: devices, scaled recipe, data folder, run folder and loader workers.

    ``workers`` serve all devices together.
    """

    devices: Devices
    recipe: ScaledRecipe
    data: Path | None
    folder: Path
    workers: int
    nodes: int = 1
    """Each has these devices."""
    simulated_nodes: bool = False
    """Whether all nodes are this machine."""
    own_cpus: tuple[CpuDevice, ...] = ()
    """The CPU devices that this process drives, or those that its replicas do."""
    cpus_of_nodes: tuple[CpuDevice, ...] = ()
    """The CPU devices of all nodes, in order, where a launcher started several."""

    @property
    def replicas(self) -> int:
        """The devices of all nodes together."""
        return self.nodes * self.devices.count

    @property
    def of_all_nodes(self) -> Devices:
        """The devices of all nodes as one set."""
        each = self.devices
        cpus = each.cpus if self.nodes == 1 else self.cpus_of_nodes
        return Devices(each.kind, each.names * self.nodes, cpus)

    @property
    def short(self) -> str:
        """How a sentence names them: "4 GPUs", "2 simulated nodes with 2 GPUs each"."""
        if self.nodes == 1:
            return self.devices.short
        nodes = f"{self.nodes} {'simulated ' * self.simulated_nodes}nodes"
        return f"{nodes} with {self.devices.short} each"

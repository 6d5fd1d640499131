"""What can go wrong, each kind with its exit code, and the named warnings about a run's health."""


class DeepClusterError(Exception):
    """One sentence for the user: what happened, to which thing, and what to do."""

    exit_code = 1


class UsageError(DeepClusterError):
    """The command cannot be carried out as it was given."""

    exit_code = 2


class DataError(DeepClusterError):
    """The images cannot be used."""

    exit_code = 3


class ResumeError(DeepClusterError):
    """The run folder and the command do not fit together, or a checkpoint cannot be read."""

    exit_code = 4


class NumericsError(DeepClusterError):
    """The numbers carry no information: not finite, or all the same."""

    exit_code = 5


class StorageError(DeepClusterError):
    """No room, or no permission, to write."""

    exit_code = 6


class WorldError(DeepClusterError):
    """Another process of the same run ended or does not agree."""

    exit_code = 7


class ToldByTheLeaderError(DeepClusterError):
    """The leading process has said what is wrong; the others end with its exit code, silently."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("")
        self.exit_code = exit_code


class HealthWarning(UserWarning):
    """Training goes on, but the user should know; `name` is stable and goes into the journal."""

    name = "health"


class DimensionsShrunk(HealthWarning):
    """The features do not fill the dimensions that were asked for."""

    name = "dimensions-shrunk"


class RowsExcluded(HealthWarning):
    """Some images gave features that are not finite; they sit this epoch out with label -1."""

    name = "rows-excluded"


class ClustersShrunk(HealthWarning):
    """There are fewer distinct rows than clusters asked for."""

    name = "clusters-shrunk"


class ManySingletons(HealthWarning):
    """Power iteration clustering left most images alone."""

    name = "many-singletons"


class HeadIsGuessing(HealthWarning):
    """The loss did not leave ln(k): the head does no better than chance."""

    name = "head-is-guessing"


class OneClusterDominates(HealthWarning):
    """One cluster holds most of the images."""

    name = "one-cluster-dominates"


class ImagesEnlarged(HealthWarning):
    """Some images, or what a store keeps of them, are smaller than the network's input."""

    name = "images-enlarged"


class PlainSearch(HealthWarning):
    """The kernel for the nearest centroid cannot be used, and the exact search takes its place."""

    name = "plain-search"


class ImagesLeftOut(HealthWarning):
    """Some images of a labelled set cannot be used; figures are those of the others."""

    name = "images-left-out"


class LabelsDisagree(HealthWarning):
    """The sets of a class say other labels than the annotations; they are used all the same."""

    name = "labels-disagree"

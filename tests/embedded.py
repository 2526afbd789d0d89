"""What an embedded model gets besides its server, shared by tests and benchmarks that build its agent themselves."""

from fugu_cli.agents.local import Small
from fugu_cli.repair.enough import over
from fugu_cli.repair.infill import fill

OVER_AND_FILL = Small(over, fill)

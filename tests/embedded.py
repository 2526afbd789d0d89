"""What an embedded model gets besides its server, shared by tests and benchmarks that build its
agent themselves.
"""

from fugu_cli.local.embedded_agent import SmallModelSupport
from fugu_cli.repair.fim_client import fill_in_middle
from fugu_cli.repair.replies import stop_reason

OVER_AND_FILL = SmallModelSupport(stop_reason, fill_in_middle)

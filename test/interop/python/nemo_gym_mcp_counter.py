"""Serves the nemo-gym package's own counter server with its tools over MCP, as `expose_tools_over_mcp` does."""

from nemo_gym.mcp_auto_exposure import maybe_auto_expose
from nemo_gym_serve import serve
from resources_servers.example_session_state_mgmt.app import (
    StatefulCounterResourcesServer,
    StatefulCounterResourcesServerConfig,
)

serve(
    StatefulCounterResourcesServer,
    StatefulCounterResourcesServerConfig,
    "counter",
    after=maybe_auto_expose,
    expose_tools_over_mcp=True,
)

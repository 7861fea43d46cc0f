"""Serves the nemo-gym package's own stateful counter server, without Ray and without its head server."""

from nemo_gym_serve import serve
from resources_servers.example_session_state_mgmt.app import (
    StatefulCounterResourcesServer,
    StatefulCounterResourcesServerConfig,
)

serve(StatefulCounterResourcesServer, StatefulCounterResourcesServerConfig, "counter")

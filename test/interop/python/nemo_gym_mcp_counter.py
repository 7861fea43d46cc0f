"""Serves the nemo-gym package's own counter server with its tools over MCP, as `expose_tools_over_mcp` does."""

import sys

import uvicorn
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.mcp_auto_exposure import maybe_auto_expose
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf
from resources_servers.example_session_state_mgmt.app import (
    StatefulCounterResourcesServer,
    StatefulCounterResourcesServerConfig,
)

port = int(sys.argv[1])
config = StatefulCounterResourcesServerConfig(
    host="127.0.0.1", port=port, entrypoint="app.py", name="counter", domain="agent", expose_tools_over_mcp=True
)
client = ServerClient(
    head_server_config=BaseServerConfig(host="127.0.0.1", port=11000), global_config_dict=OmegaConf.create({})
)
server = StatefulCounterResourcesServer(config=config, server_client=client)
app = server.setup_webserver()
server.setup_liveness(app)
server.setup_exception_middleware(app)
maybe_auto_expose(server, app)
uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")

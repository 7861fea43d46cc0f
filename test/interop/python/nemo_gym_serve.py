"""Serves a NeMo Gym resources server without Ray and without its head server, on the port of the command line."""

import sys

import uvicorn
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf


def serve(server_class, config_class, name, after=None, **more):
    """`after(server, app)` is called before the application runs; `more` goes to the configuration."""
    port = int(sys.argv[1])
    config = config_class(host="127.0.0.1", port=port, entrypoint="app.py", name=name, domain="agent", **more)
    client = ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=11000), global_config_dict=OmegaConf.create({})
    )
    server = server_class(config=config, server_client=client)
    app = server.setup_webserver()
    server.setup_liveness(app)
    server.setup_exception_middleware(app)
    if after:
        after(server, app)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")

"""An environment of the OpenEnv package with one tool and a reward, served by uvicorn for test/interop."""

from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Observation, State

class ToolEnv(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    def __init__(self):
        mcp = FastMCP("tool-env")
        @mcp.tool
        def add(a: int, b: int) -> int:
            """Add two integers."""
            if a == 13:
                raise ValueError("unlucky number")
            return a + b
        super().__init__(mcp)
        self._s = State(episode_id=None, step_count=0)
    def reset(self, seed=None, episode_id=None, **kw):
        self._s = State(episode_id=episode_id or "ep", step_count=0)
        return Observation(done=False, reward=0.0, metadata={"reward_components": {"form": 0.5}})
    def _step_impl(self, action, timeout_s=None, **kw):
        return Observation(done=False, reward=0.0)
    @property
    def state(self):
        return self._s

app = create_app(ToolEnv, CallToolAction, CallToolObservation, env_name="tool", max_concurrent_envs=4)

"""An environment of actions on the OpenEnv package: a stall that weighs goods, with a reward for each step. For test/interop."""

import sys

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Observation, State


class Stall(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        mcp = FastMCP("stall")
        self.stock = {}
        self.answered = 0

        @mcp.tool
        def nachschlagen(schluessel: str) -> int:
            """Weighs a good."""
            weight = self.stock[schluessel]
            self.answered += 1
            return weight

        @mcp.tool
        def rechner(ausdruck: str) -> int:
            """Counts the letters of a text."""
            self.answered += 1
            return len(ausdruck)

        super().__init__(mcp)
        self._s = State(episode_id=None, step_count=0)

    def reset(self, seed=None, episode_id=None, stock=None, **kw):
        self.stock, self.answered = dict(stock or {}), 0
        self._s = State(episode_id=episode_id, step_count=0)
        return Observation(done=False, reward=None)

    def _paid(self, observation):
        if isinstance(observation, CallToolObservation):
            observation.reward = min(1.0, self.answered / 4)
            self._s.step_count += 1
        return observation

    def step(self, action, timeout_s=None, **kw):
        return self._paid(super().step(action, timeout_s=timeout_s, **kw))

    async def step_async(self, action, timeout_s=None, **kw):
        return self._paid(await super().step_async(action, timeout_s=timeout_s, **kw))

    def _step_impl(self, action, timeout_s=None, **kw):
        return Observation(done=False, reward=None)

    @property
    def state(self):
        return self._s


app = create_app(Stall, CallToolAction, CallToolObservation, env_name="stall", max_concurrent_envs=8)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")

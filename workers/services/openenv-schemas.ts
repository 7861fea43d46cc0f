// The JSON Schemas that /schema shows for upstream's own models, as the recorded servers wrote them. Not used to
// validate (openenv-tools.ts does). Invariant: key order and texts are upstream's, so that /schema is equal byte for byte.

const nullable = (type: string) => ({ anyOf: [{ type }, { type: 'null' }], default: null });

/** The schema of the base State, which /schema shows for every environment. */
export const STATE_SCHEMA = JSON.stringify({
  additionalProperties: true,
  description: [
    'Base class for environment state.',
    '',
    'Represents internal environment state, separate from observations.',
  ].join('\n'),
  properties: {
    episode_id: {
      ...nullable('string'),
      description: 'Unique identifier for the current episode',
      title: 'Episode Id',
    },
    step_count: {
      default: 0,
      description: 'Number of steps taken in the current episode',
      minimum: 0,
      title: 'Step Count',
      type: 'integer',
    },
  },
  title: 'State',
  type: 'object',
});

/** The schema of CallToolAction, by whose title clients know an environment of tools. */
export const CALL_TOOL_SCHEMA = JSON.stringify({
  additionalProperties: false,
  description: [
    'Call a specific tool via MCP.',
    '',
    "This action triggers MCP's tools/call operation with the",
    'specified tool name and arguments.',
  ].join('\n'),
  properties: {
    metadata: {
      additionalProperties: true,
      description: 'Additional metadata for the action',
      title: 'Metadata',
      type: 'object',
    },
    type: {
      const: 'call_tool',
      default: 'call_tool',
      description: 'Action type discriminator',
      title: 'Type',
      type: 'string',
    },
    tool_name: { description: 'Name of the tool to call', title: 'Tool Name', type: 'string' },
    arguments: {
      additionalProperties: true,
      description: 'Arguments to pass to the tool',
      title: 'Arguments',
      type: 'object',
    },
  },
  required: ['tool_name'],
  title: 'CallToolAction',
  type: 'object',
});

/** The schema of CallToolObservation. */
export const CALL_TOOL_OBSERVATION_SCHEMA = JSON.stringify({
  $defs: {
    ToolError: {
      additionalProperties: false,
      description: [
        'Structured error for tool execution failures.',
        '',
        'This is used for transport/framework errors, NOT for errors returned',
        'by the tool itself (those go in the result field).',
      ].join('\n'),
      properties: {
        error_type: { $ref: '#/$defs/ToolErrorType', description: 'Category of the error' },
        message: { description: 'Human-readable error message', title: 'Message', type: 'string' },
      },
      required: ['error_type', 'message'],
      title: 'ToolError',
      type: 'object',
    },
    ToolErrorType: {
      description: 'Types of errors that can occur during tool execution.',
      enum: ['execution_error', 'invalid_args', 'transport_error', 'tool_not_found', 'timeout'],
      title: 'ToolErrorType',
      type: 'string',
    },
  },
  additionalProperties: false,
  description: [
    'Response from tool execution.',
    '',
    "Contains the tool's result or an error if the call failed.",
    'Tool-specific errors (from the tool itself) are included in the result.',
    'Transport/framework errors use the error field.',
  ].join('\n'),
  properties: {
    done: { default: false, description: 'Whether the episode has terminated', title: 'Done', type: 'boolean' },
    reward: {
      anyOf: ['boolean', 'integer', 'number', 'null'].map((type) => ({ type })),
      default: null,
      description: 'Reward signal from the last action',
      title: 'Reward',
    },
    metadata: {
      additionalProperties: true,
      description: 'Additional metadata for the observation',
      title: 'Metadata',
      type: 'object',
    },
    tool_name: { description: 'Name of the tool that was called', title: 'Tool Name', type: 'string' },
    result: { default: null, description: 'Tool-specific result (may include tool errors)', title: 'Result' },
    error: {
      anyOf: [{ $ref: '#/$defs/ToolError' }, { type: 'null' }],
      default: null,
      description: 'Transport/framework error if call failed',
    },
  },
  required: ['tool_name'],
  title: 'CallToolObservation',
  type: 'object',
});

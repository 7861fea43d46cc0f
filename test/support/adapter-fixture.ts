// What Python's json.dumps(fields, indent=2, sort_keys=True) makes of an adapter configuration.
// Not made by the project. Invariant: the text is Python's own, escapes of non-ASCII included.

export const adapterConfigText = String.raw`{
  "alpha_pattern": {},
  "auto_mapping": null,
  "base_model_name_or_path": "Gr\u00f6\u00dfe/\ud83e\udd9c",
  "bias": "none",
  "fan_in_fan_out": false,
  "inference_mode": true,
  "init_lora_weights": true,
  "layers_pattern": null,
  "layers_to_transform": null,
  "lora_alpha": 8,
  "lora_dropout": 0.0,
  "modules_to_save": null,
  "peft_type": "LORA",
  "r": 4,
  "rank_pattern": {},
  "revision": null,
  "target_modules": [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj"
  ],
  "task_type": "CAUSAL_LM",
  "use_dora": false,
  "use_rslora": false
}`;

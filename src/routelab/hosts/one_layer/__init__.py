"""The one-layer mixture-of-experts transformer of the task-routing theory, known to transformers by its model type."""

from transformers import AutoConfig, AutoModelForCausalLM

from routelab.hosts.one_layer.config import OneLayerConfig
from routelab.hosts.one_layer.model import OneLayerForCausalLM, OneLayerModel

AutoConfig.register(OneLayerConfig.model_type, OneLayerConfig, exist_ok=True)
AutoModelForCausalLM.register(OneLayerConfig, OneLayerForCausalLM, exist_ok=True)

__all__ = ["OneLayerConfig", "OneLayerForCausalLM", "OneLayerModel"]

"""Native depth-recurrent hosts: Huginn and Recurrent-Llama, and what makes a Llama into one."""

from transformers import AutoConfig, AutoModelForCausalLM

from routelab.hosts.recurrent.cache import RecurrentCache
from routelab.hosts.recurrent.config import RecurrentConfig
from routelab.hosts.recurrent.convert import convert
from routelab.hosts.recurrent.core import CoreAttention, CoreCall, FullCoreAttention
from routelab.hosts.recurrent.model import RecurrentForCausalLM

AutoConfig.register(RecurrentConfig.model_type, RecurrentConfig, exist_ok=True)
AutoModelForCausalLM.register(RecurrentConfig, RecurrentForCausalLM, exist_ok=True)

__all__ = [
    "CoreAttention",
    "CoreCall",
    "FullCoreAttention",
    "RecurrentCache",
    "RecurrentConfig",
    "RecurrentForCausalLM",
    "convert",
]

"""Knowledge to exact weights: the constructions of Theorems 4.1 and 4.2 of arXiv 2606.14398, and their certificates."""

from routelab.theory.certificate import Certificate, certify
from routelab.theory.construct import Construction, construct_dense, construct_moe
from routelab.theory.explain import complete, explain
from routelab.theory.storage import load, save, verify

__all__ = [
    "Certificate",
    "Construction",
    "certify",
    "complete",
    "construct_dense",
    "construct_moe",
    "explain",
    "load",
    "save",
    "verify",
]

"""A standalone Spark cluster on this machine whose workers share no folder with the driver."""

from infra.deploy.cluster.standalone import Cluster, Worker, unpacked, wheel

__all__ = ["Cluster", "Worker", "unpacked", "wheel"]

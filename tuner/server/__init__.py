"""The engine-neutral life of a server: processes, ports, HTTP, logs, GPU readings."""

"""From a served model to numbers: the load client, metrics, statistics and doubts."""

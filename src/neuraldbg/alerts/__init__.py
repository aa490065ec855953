"""The way of an alert to a person: an Alert in; a line on the terminal, in a file, to a command or a webhook out.

What a program would have to wait for is done by one thread of ours, which begins with the first such alert: the file,
the command and the webhook. The training puts an alert into a bounded queue, and goes on. When the session ends, what
still waits gets ``FLUSH_S`` seconds. What could not be delivered is counted, and reported once for each way.

- ``asked_alerts.py``: what a user asks for: rules, ways, and the rate limit
- ``rate_limit.py``: at most one alert of a rule in so many seconds, with the number of those that were held back
- ``delivery.py``: the queue and the thread
- ``alert_file.py``: alerts as JSON lines of a file
- ``alert_command.py``: a command that is run with each alert
- ``webhook.py``: an address that each alert is posted to
- ``sink.py``: the contract of these three
"""

from neuraldbg.alerts.asked_alerts import Alerts
from neuraldbg.alerts.delivery import Delivery
from neuraldbg.alerts.rate_limit import RateLimit

__all__ = ["Alerts", "Delivery", "RateLimit"]

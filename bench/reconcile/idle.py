"""A process that only ticks, as the server's watchdog does: how late is a tick that no work holds up?

Prints its longest stall in seconds at its end.
"""

import asyncio
import signal
import sys

from app.watchdog import IDLE_TICKS, TICK_SECONDS, Watchdog


async def main() -> None:
    """Tick until SIGTERM."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    watchdog = Watchdog(tick_seconds=TICK_SECONDS / IDLE_TICKS)  # it rests all the time
    ticking = asyncio.create_task(watchdog.run())
    await told.wait()
    ticking.cancel()
    sys.stdout.write(f"{watchdog.longest_ever}\n")


asyncio.run(main())

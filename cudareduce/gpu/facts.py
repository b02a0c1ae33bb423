"""What a result says of a GPU."""

from __future__ import annotations

from typing import Any

from cudareduce.gpu.nvml import management_facts
from cudareduce.machine.device import DeviceInfo, theoretical_gb_s
from cudareduce.machine.host import host_name


def device_info(driver: Any, device: Any, nvcc: str | None) -> DeviceInfo:
    """What PyCUDA's driver module and, where installed, NVML say of a device; `nvcc` is the release
    of the compiler."""
    attribute, get = driver.device_attribute, device.get_attribute
    clock, bits = get(attribute.MEMORY_CLOCK_RATE), get(attribute.GLOBAL_MEMORY_BUS_WIDTH)
    version = driver.get_driver_version()
    facts = management_facts(device.pci_bus_id())
    return DeviceInfo(
        name=device.name(),
        cc="{}.{}".format(*device.compute_capability()),
        sm_count=get(attribute.MULTIPROCESSOR_COUNT),
        threads_per_sm=get(attribute.MAX_THREADS_PER_MULTIPROCESSOR),
        l2_bytes=get(attribute.L2_CACHE_SIZE),
        memory_bytes=device.total_memory(),
        memory_clock_khz=clock,
        bus_bits=bits,
        peak_gb_s=theoretical_gb_s(clock, bits),
        uuid=facts.uuid,
        ecc=bool(get(attribute.ECC_ENABLED)),
        mig=facts.mig,
        power_limit_w=facts.power_limit_w,
        driver=facts.driver,
        cuda=f"{version // 1000}.{version % 1000 // 10}",
        nvcc=nvcc,
        host=host_name(),
    )

// Empty: the emulator's device.h is included ahead of every kernel.

/* Detects the portable level of this CPU, like silo.drivers.cpu.levels. */
#ifndef SILO_CPU_LEVEL_H
#define SILO_CPU_LEVEL_H

/* Returns "x86-64-v3", "aarch64-armv8.2", ...; NULL if the CPU is below the lowest level. */
const char *silo_cpu_level(void);

#endif

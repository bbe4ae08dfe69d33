/* The portable level of this CPU, as silo.drivers.cpu.levels finds it. */
#ifndef SILO_CPU_LEVEL_H
#define SILO_CPU_LEVEL_H

/* "x86-64-v3", "aarch64-armv8.2", ...; NULL below the lowest. */
const char *silo_cpu_level(void);

#endif

#include "flight_ring.h"

struct silo_flight_ring silo_flight;

/* A list with one item for each lane of a vector of 4-byte or 8-byte elements: item(0, k), item(1,
   k), ... */
#define SILO_TWO_LANES(item, k, i) item(i, k), item((i) + 1, k)
#define SILO_FOUR_LANES(item, k, i) SILO_TWO_LANES(item, k, i), SILO_TWO_LANES(item, k, (i) + 2)
#define SILO_EIGHT_LANES(item, k, i) SILO_FOUR_LANES(item, k, i), SILO_FOUR_LANES(item, k, (i) + 4)
#if SILO_VECTOR_BITS == 512
#define SILO_LANES_OF_4(item, k) SILO_EIGHT_LANES(item, k, 0), SILO_EIGHT_LANES(item, k, 8)
#define SILO_LANES_OF_8(item, k) SILO_EIGHT_LANES(item, k, 0)
#elif SILO_VECTOR_BITS == 256
#define SILO_LANES_OF_4(item, k) SILO_EIGHT_LANES(item, k, 0)
#define SILO_LANES_OF_8(item, k) SILO_FOUR_LANES(item, k, 0)
#else
#define SILO_LANES_OF_4(item, k) SILO_FOUR_LANES(item, k, 0)
#define SILO_LANES_OF_8(item, k) SILO_TWO_LANES(item, k, 0)
#endif

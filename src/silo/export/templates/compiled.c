/* Code of the CPU that is a part of the program, in place of objects of the bundle. */
typedef int32_t compiled_entry(void *const *parameters, const uint32_t grid[3], uint64_t begin,
                               uint64_t end, void *scratch, void *context);
@ENTRIES@static const silo_compiled compiled[] = {
@TABLE@    {NULL, NULL, NULL},
};

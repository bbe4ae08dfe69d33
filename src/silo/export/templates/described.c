
static silo_argument described(const void *address, int element, int rank, const int64_t *shape,
                               const int64_t *strides, const int64_t *block, unsigned flags) {
    silo_argument made = silo_descriptor(address, element, rank, shape, strides, block);
    made.flags = (uint8_t)flags;
    return made;
}

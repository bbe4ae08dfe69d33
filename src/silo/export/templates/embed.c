/* Writes the bytes of a file as the text of an array, for compilers whose assembler lacks .incbin:
 * embed NAME.silo > NAME_bundle.inc */
#include <stdio.h>

int main(int count, char **words) {
    FILE *file = count == 2 ? fopen(words[1], "rb") : NULL;
    if (file == NULL) {
        fprintf(stderr, "embed: cannot read %s\n", count == 2 ? words[1] : "a file: name one");
        return 1;
    }
    for (int byte = fgetc(file), column = 1; byte != EOF; byte = fgetc(file), column++)
        printf("%d,%s", byte, column % 24 == 0 ? "\n" : "");
    return ferror(file) != 0 || fflush(stdout) != 0;
}

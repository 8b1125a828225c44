/*
 * Fields of what was measured: read and refused by name.
 */
#ifndef SP_BENCH_BENCH_FIELD_H
#define SP_BENCH_BENCH_FIELD_H

#include "verify/bench/bench.h"

/* A number from 0 to 1e12; null and missing are 0 where that is allowed. SP_EFAIL. */
int sp_bench_number(double *out, const json_t *object, const char *key);
int sp_bench_opt_number(double *out, const json_t *object, const char *key);

/* Text into a field of `size` bytes, cut between characters to fit, without orders to a terminal. */
void sp_bench_copy(char *out, size_t size, const char *text);

/* The same of a field; null and missing are "". */
int sp_bench_opt_text(char *out, size_t size, const json_t *object, const char *key);

/* A count of elements or bytes. null is 0. */
int sp_bench_opt_count(uint64_t *out, const json_t *object, const char *key);

/* The rates of a group by the names that they have in JSON: the address of number i, NULL behind the last. */
double *sp_bench_rate(struct sp_bench_rates *rates, size_t i, const char **key);

/* The algorithm of a row, added; SP_EFAIL: it is none of ours, or there twice. */
int sp_bench_ours_of(struct sp_bench_ours **out, struct sp_bench_row *row, const char *algorithm);

#endif

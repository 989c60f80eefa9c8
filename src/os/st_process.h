/* What the operating system knows about this process: time, memory, its own
 * path, its terminal, and the one environment variable that the program reads. */
#ifndef ST_PROCESS_H
#define ST_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Seconds on a clock that never goes back; its zero has no meaning. */
double st_clock_seconds(void);

/* The most physical memory this process has held so far; 0 if not known. */
int64_t st_process_peak_bytes(void);

/* The physical memory this process holds now: heap, stacks and other anonymous
 * pages, and pages of mapped files (code, libraries, weights). 0 if not known. */
int64_t st_process_anonymous_bytes(void);
int64_t st_process_file_bytes(void);

/* fills path with the running executable's absolute path. false, and an empty
 * string, if it is not known or does not fit. */
bool st_process_executable(char *path, size_t n_bytes);

/* Fills text with the system's name, release and machine: "Linux 6.1.0 x86_64". */
void st_system_name(char *text, size_t n_bytes);

/* Columns of the terminal behind a file descriptor; 0 if there is none. */
int32_t st_terminal_columns(int fd);

/* NO_COLOR is set and not empty (https://no-color.org). */
bool st_env_no_color(void);

#endif

/*
 * Makes user-mode Linux 6.1 run on processors whose register state is larger than it knows (AMX). It gives back as much of the
 * state as it once took, and newer host kernels accept nothing but all of it. Loaded before the C library, this stands in for
 * ptrace() and fills up what is missing from the state that the process has.
 *
 * Built without any header, so that a bare compiler is enough: gcc -O2 -shared -fPIC -nostdlib
 */
struct iovec {
  void *base;
  unsigned long length;
};

enum { SYS_PTRACE = 101, PEEK_FIRST = 1, PEEK_LAST = 3, GET_REGISTERS = 0x4204, SET_REGISTERS = 0x4205, XSTATE = 0x202 };

extern int *__errno_location(void);

static long call(long request, long pid, void *address, void *data) {
  long result;
  register void *fourth __asm__("r10") = data;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"((long)SYS_PTRACE), "D"(request), "S"(pid), "d"(address), "r"(fourth)
                   : "rcx", "r11", "memory");
  return result;
}

static long set_whole_state(long pid, const struct iovec *given) {
  static unsigned char state[65536];
  struct iovec whole = { state, sizeof state };
  long result = call(GET_REGISTERS, pid, (void *)XSTATE, &whole);
  if (result < 0) return result;
  for (unsigned long i = 0; i < given->length && i < whole.length; i++) state[i] = ((unsigned char *)given->base)[i];
  return call(SET_REGISTERS, pid, (void *)XSTATE, &whole);
}

long ptrace(long request, long pid, void *address, void *data) {
  /* What is peeked at is returned by the library's function, and stored by the kernel's. */
  int peeks = request >= PEEK_FIRST && request <= PEEK_LAST;
  long word = 0;
  long result = request == SET_REGISTERS && address == (void *)XSTATE
    ? set_whole_state(pid, data)
    : call(request, pid, address, peeks ? &word : data);
  if (result < 0) {
    *__errno_location() = (int)-result;
    return -1;
  }
  if (!peeks) return result;
  *__errno_location() = 0;
  return word;
}

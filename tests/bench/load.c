/*
 * Backend and client of `deno task bench packets`, in one thread each: what they cost is little more than their system calls.
 *
 *   load serve IP PORT               reads a connection whose first byte is 's' to its end and answers how many bytes came, as eight
 *                                    bytes in network order; any other gets back what it sends. Prints "ready" once it listens.
 *   load reach IP PORT MS            asks until there is an answer, for so long at most
 *   load requests IP PORT COUNT      so many small requests, one after the other, each on a new connection
 *   load streams IP PORT COUNT MS    so many streams at once, for so long; each then waits for the backend's count
 *
 * The client prints JSON: {"ms":…} of the whole, with "timesMs" of each request, connection included, or "bytes" of all streams.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { REQUEST_BYTES = 100, WRITE_BYTES = 64 << 10, READ_BYTES = 256 << 10, MOST = 4096 };

static char buffer[READ_BYTES];

static long checked(long result, const char *what) {
  if (result >= 0) return result;
  perror(what);
  exit(1);
}

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static int with_no_delay(int socket) {
  int one = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return socket;
}

static int new_socket(void) { return with_no_delay(checked(socket(AF_INET, SOCK_STREAM, 0), "socket")); }

static int connected(const struct sockaddr_in *to) {
  int socket = new_socket();
  checked(connect(socket, (const struct sockaddr *)to, sizeof *to), "connect");
  return socket;
}

/* One request and its answer; false if there is none. */
static int ask(int socket) {
  memset(buffer, 'r', REQUEST_BYTES);
  return send(socket, buffer, REQUEST_BYTES, MSG_NOSIGNAL) == REQUEST_BYTES &&
         recv(socket, buffer, REQUEST_BYTES, MSG_WAITALL) == REQUEST_BYTES;
}

static void serve(const struct sockaddr_in *at) {
  static char kinds[MOST];
  static uint64_t streamed[MOST];
  int listener = new_socket(), one = 1, queue = checked(epoll_create1(0), "epoll_create1");
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  checked(bind(listener, (const struct sockaddr *)at, sizeof *at), "bind");
  checked(listen(listener, MOST), "listen");
  struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
  checked(epoll_ctl(queue, EPOLL_CTL_ADD, listener, &event), "epoll_ctl");
  puts("ready");
  fflush(stdout);
  for (;;) {
    checked(epoll_wait(queue, &event, 1, -1), "epoll_wait");
    int socket = event.data.fd;
    if (socket == listener) {
      socket = with_no_delay(checked(accept(listener, NULL, NULL), "accept"));
      if (socket >= MOST) checked(-1, "too many connections");
      kinds[socket] = streamed[socket] = 0;
      event = (struct epoll_event){.events = EPOLLIN, .data.fd = socket};
      checked(epoll_ctl(queue, EPOLL_CTL_ADD, socket, &event), "epoll_ctl");
      continue;
    }
    ssize_t count = recv(socket, buffer, sizeof buffer, 0);
    if (count > 0 && kinds[socket] == 0) kinds[socket] = buffer[0];
    if (count > 0 && kinds[socket] == 's') {
      streamed[socket] += count;
    } else if (count > 0) {
      send(socket, buffer, count, MSG_NOSIGNAL);
    } else {
      uint64_t total = htobe64(streamed[socket]);
      if (count == 0 && kinds[socket] == 's') send(socket, &total, sizeof total, MSG_NOSIGNAL);
      close(socket);
    }
  }
}

/* A connection that began before the rules were there never finds its way: the kernel translates none that it knows already. So each
   gets little time, and another is tried. */
static void reach(const struct sockaddr_in *to, double limit_ms) {
  struct timeval limit = {.tv_usec = 500000};
  for (double end = now_ms() + limit_ms; now_ms() < end; usleep(50000)) {
    int socket = new_socket();
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    int is_reached = connect(socket, (const struct sockaddr *)to, sizeof *to) == 0 && ask(socket);
    close(socket);
    if (is_reached) return;
  }
  checked(-1, "no answer");
}

static void requests(const struct sockaddr_in *to, int count) {
  printf("\"timesMs\":[");
  for (int done = 0; done < count; done++) {
    double start = now_ms();
    int socket = connected(to);
    if (!ask(socket)) checked(-1, "no whole answer");
    printf(done == 0 ? "%.4f" : ",%.4f", now_ms() - start);
    close(socket);
  }
  printf("],");
}

static void streams(const struct sockaddr_in *to, int count, double ms) {
  struct pollfd sockets[count];
  uint64_t sent = 0, arrived = 0;
  memset(buffer, 's', WRITE_BYTES);
  for (int i = 0; i < count; i++) sockets[i] = (struct pollfd){.fd = connected(to), .events = POLLOUT};
  for (double end = now_ms() + ms; now_ms() < end;) {
    checked(poll(sockets, count, -1), "poll");
    for (int i = 0; i < count; i++) {
      if (sockets[i].revents == 0) continue;
      sent += checked(send(sockets[i].fd, buffer, WRITE_BYTES, MSG_DONTWAIT | MSG_NOSIGNAL), "a stream was broken off");
    }
  }
  for (int i = 0; i < count; i++) shutdown(sockets[i].fd, SHUT_WR);
  for (int i = 0; i < count; i++) {
    uint64_t counted = 0;
    if (recv(sockets[i].fd, &counted, sizeof counted, MSG_WAITALL) != sizeof counted) checked(-1, "no count");
    arrived += be64toh(counted);
  }
  if (arrived != sent) checked(-1, "bytes were lost");
  printf("\"bytes\":%llu,", (unsigned long long)arrived);
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[3]))};
  if (inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) return 2;
  if (strcmp(argv[1], "serve") == 0) serve(&address);
  if (argc < 5) return 2;
  double start = now_ms();
  putchar('{');
  if (strcmp(argv[1], "reach") == 0) reach(&address, atof(argv[4]));
  if (strcmp(argv[1], "requests") == 0) requests(&address, atoi(argv[4]));
  if (strcmp(argv[1], "streams") == 0 && argc == 6) streams(&address, atoi(argv[4]), atof(argv[5]));
  printf("\"ms\":%.3f}\n", now_ms() - start);
}

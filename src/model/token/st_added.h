/* Added tokens, such as <|im_end|>: strings that are one token wherever they
 * stand, found before anything else is done to the text. */
#ifndef ST_ADDED_H
#define ST_ADDED_H

#include "core/st_mem.h"

/* The flags of tokenizer.json. Special ones are known by the token table. */
typedef struct st_added_token {
  int32_t id;
  bool single_word; /* not beside a letter or digit */
  bool lstrip;      /* takes the white space before it */
  bool rstrip;      /* takes the white space behind it */
} st_added_token;

/* A trie over bytes. Children are a linked list in no order. */
typedef struct st_added_node {
  int32_t child, sibling; /* 0: none (node 0 is the root) */
  int32_t token;          /* index of the token that ends here, or -1 */
  uint8_t byte;
} st_added_node;

/* Zero to begin with. */
typedef struct st_added {
  st_added_token *tokens;
  size_t n_tokens, tokens_capacity;
  st_added_node *nodes; /* [n_nodes] */
  size_t n_nodes, nodes_capacity;
  int32_t root_child[256]; /* the root's children by byte; 0: none */
} st_added;

/* Adds a token that matches n >= 1 bytes. Of two with the same content, the
 * first matches. LIMIT if the contents together are beyond 2^31 bytes. */
strata_status st_added_put(st_added *added, const char *content, size_t n, st_added_token token,
                           strata_error *err);
void st_added_release(st_added *added);

/* A byte range for matches. */
typedef struct st_added_match {
  const st_added_token *token; /* NULL: none */
  size_t begin, end;           /* of the content itself */
} st_added_match;

/* The first match that lies in text[from, limit), the longest of those that
 * begin there. */
st_added_match st_added_find(const st_added *added, const char *text, size_t from, size_t limit);

/* Whether single_word lets the match stand; n is the whole text's length. */
bool st_added_stands_alone(const char *text, size_t n, st_added_match match);
/* The ends of a match with the white space that lstrip and rstrip take. Takes
 * nothing before floor. */
size_t st_added_left(const char *text, st_added_match match, size_t floor);
size_t st_added_right(const char *text, size_t n, st_added_match match);

#endif

/* Where a string stands in tables, and so in which order `pairs` walks them: the same in all VMs of the process.
**
** nginx's workers are copies of one VM, so tables with the same fields are walked in the same order in all of them. Programs
** have come to rely on it: what they make of a table's fields (a text of JSON, and a number of that) is a key of what
** workers share. LuaJIT numbers strings as they are made, which in VMs of their own would be another order in each.
**
** The number is a hash of the whole text with a secret of the process: texts that stand in one place can't be chosen from
** outside. Longer texts are numbered as LuaJIT does; that long no field's name is. */

#define WEIR_STRING_MAX 256

static uint64_t weir_strings_secret;

/* A VM begins: the first one's number is the secret. */
static void weir_strings_begin(uint64_t random)
{
  uint64_t none = 0;
  __atomic_compare_exchange_n(&weir_strings_secret, &none, random | 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static LJ_AINLINE uint64_t weir_fold(uint64_t a, uint64_t b)
{
  unsigned __int128 product = (unsigned __int128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static LJ_AINLINE uint64_t weir_word(const char *p) { uint64_t w; memcpy(&w, p, 8); return w; }
static LJ_AINLINE uint32_t weir_half(const char *p) { uint32_t w; memcpy(&w, p, 4); return w; }

static LJ_AINLINE StrID weir_string_id(const char *str, MSize len)
{
  uint64_t secret = __atomic_load_n(&weir_strings_secret, __ATOMIC_RELAXED);
  uint64_t hash = secret ^ len, last = 0;
  const char *end = str + len;
  for (; len > 8; str += 8, len -= 8)
    hash = weir_fold(hash ^ weir_word(str), 0x9e3779b97f4a7c15ull ^ (secret << 1));
  /* What is left: one to eight bytes, or none of an empty text. */
  if (len == 8)
    last = weir_word(str);
  else if (len >= 4)
    last = weir_half(str) | (uint64_t)weir_half(end - 4) << 32;
  else if (len > 0)
    last = (uint8_t)str[0] | (uint64_t)(uint8_t)str[len >> 1] << 8 | (uint64_t)(uint8_t)end[-1] << 16;
  hash = weir_fold(hash ^ last, 0xd6e8feb86659fd93ull ^ (secret >> 1));
  return (StrID)(hash ^ (hash >> 32));
}

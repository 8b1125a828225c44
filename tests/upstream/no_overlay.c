/* A library that has none of the functions. */
int not_upstream(void);

int not_upstream(void)
{
    return 0;
}
